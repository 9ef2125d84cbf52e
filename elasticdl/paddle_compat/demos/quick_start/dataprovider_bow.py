"""A line of data is a label, a tab and the words of a review."""

from paddle.trainer.PyDataProvider2 import *

UNKNOWN = 0


def initializer(settings, dictionary, **kwargs):
    settings.words = dictionary
    settings.input_types = {"word": sparse_binary_vector(len(dictionary)), "label": integer_value(2)}


@provider(init_hook=initializer, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, filename):
    with open(filename) as file:
        for line in file:
            label, text = line.rstrip("\n").split("\t")
            ids = {settings.words.get(word, UNKNOWN) for word in text.split()}
            yield {"word": sorted(ids), "label": int(label)}
