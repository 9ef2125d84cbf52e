"""Ratings of movies: how close a user and a movie are, as the cosine of two vectors."""

import json

from paddle.trainer_config_helpers import *

with open("data/recommendation/meta.json") as file:
    meta = json.load(file)

define_py_data_sources2(
    "data/recommendation/train.list",
    "data/recommendation/test.list",
    module="dataprovider",
    obj="process",
    args={"meta": meta},
)

settings(
    batch_size=get_config_arg("batch_size", int, 1600),
    learning_rate=1e-3,
    learning_method=RMSPropOptimizer(),
)

size = get_config_arg("size", int, 256)


def embedded(name):
    values = data_layer(name=name, size=meta[name])
    return fc_layer(input=embedding_layer(input=values, size=size), size=size)


movie = embedded("movie_id")
title = data_layer(name="title", size=meta["title"])
title = text_conv_pool(input=embedding_layer(input=title, size=size), context_len=5, hidden_size=size)
genres = fc_layer(input=data_layer(name="genres", size=meta["genres"]), size=size)
movie = fc_layer(input=[movie, title, genres], size=size, name="movie_fusion")

user = [embedded(name) for name in ("user_id", "gender", "age", "occupation")]
user = fc_layer(input=user, size=size, name="user_fusion")

rating = data_layer(name="rating", size=1)
outputs(regression_cost(input=cos_sim(a=movie, b=user, scale=5), label=rating))
