"""A line of data has the slots with tabs between them; ids of title and genres have spaces between them."""

from paddle.trainer.PyDataProvider2 import *


def initializer(settings, meta, **kwargs):
    settings.input_types = {
        "movie_id": integer_value(meta["movie_id"]),
        "title": integer_value_sequence(meta["title"]),
        "genres": sparse_binary_vector(meta["genres"]),
        "user_id": integer_value(meta["user_id"]),
        "gender": integer_value(meta["gender"]),
        "age": integer_value(meta["age"]),
        "occupation": integer_value(meta["occupation"]),
        "rating": dense_vector(1),
    }


@provider(init_hook=initializer, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, filename):
    with open(filename) as file:
        for line in file:
            movie, title, genres, user, gender, age, occupation, rating = line.rstrip("\n").split("\t")
            yield {
                "movie_id": int(movie),
                "title": [int(word) for word in title.split()],
                "genres": [int(genre) for genre in genres.split()],
                "user_id": int(user),
                "gender": int(gender),
                "age": int(age),
                "occupation": int(occupation),
                # From 1 to 5 stars to -3 to 5.
                "rating": [2.0 * float(rating) - 5.0],
            }
