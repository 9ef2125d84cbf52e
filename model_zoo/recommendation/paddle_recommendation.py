"""Ratings of movies by what users and movies are, in Paddle: a vector of each, and how near they are is the rating.

    elasticdl data make movielens-like --output=data/movielens
    elasticdl train --model_zoo=model_zoo --model_def=recommendation.paddle_recommendation.custom_model \\
        --training_data=data/movielens/train --validation_data=data/movielens/test --num_ps=1 --num_workers=2

A row has user, gender, age, occupation, movie, title, genres (separated by |) and rating; rows to predict for need no
rating. Users, movies and words of titles have rows on the parameter servers: none of them is counted before.
"""

import zlib

import numpy as np
import paddle
from paddle import nn

import elasticdl.paddle
from elasticdl.worker.scoring.metrics import MeanAbsoluteError, RootMeanSquaredError

AGES = {"1": 0, "18": 1, "25": 2, "35": 3, "45": 4, "50": 5, "56": 6}
OCCUPATIONS = 21
# Features with varying numbers of parts are padded with an invalid id of weight 0.
GENRES, WORDS = 4, 6


def feed(dataset, mode, metadata):
    for user, gender, age, occupation, movie, title, genres, *rating in dataset:
        words = title.rpartition(" (")[0].lower().split()
        features = {
            "user": np.array([int(user)], np.int64),
            "profile": np.array([gender == "M", AGES[age], int(occupation)], np.int64),
            "movie": np.array([int(movie)], np.int64),
            "genres": _ids(genres.split("|"), GENRES),
            "title": _ids(words, WORDS),
        }
        yield (features, np.array([rating[0]], np.float32)) if rating else features


def _ids(texts, length):
    ids = [1 + zlib.crc32(text.encode()) for text in texts[:length]]
    return np.array(ids + [0] * (length - len(ids)), np.int64)


class Recommendation(nn.Layer):
    def __init__(self, dimension):
        super().__init__()

        def table(name):
            return elasticdl.paddle.Embedding(
                dimension, name=name, initializer={"kind": "normal", "stddev": 0.1}
            )

        self.users, self.movies = table("users"), table("movies")
        self.genres, self.words = table("genres"), table("words")
        self.gender = nn.Embedding(2, dimension)
        self.age = nn.Embedding(len(AGES), dimension)
        self.occupation = nn.Embedding(OCCUPATIONS, dimension)
        self.user_vector = nn.Sequential(nn.Linear(4 * dimension, 64), nn.Tanh(), nn.Linear(64, 32))
        self.movie_vector = nn.Sequential(nn.Linear(3 * dimension, 64), nn.Tanh(), nn.Linear(64, 32))

    def forward(self, user, profile, movie, genres, title):
        user_parts = [
            self.users(user).squeeze(1),
            self.gender(profile[:, 0]),
            self.age(profile[:, 1]),
            self.occupation(profile[:, 2]),
        ]
        movie_parts = [
            self.movies(movie).squeeze(1),
            _mean(self.genres(genres), genres),
            _mean(self.words(title), title),
        ]
        first = self.user_vector(paddle.concat(user_parts, axis=1))
        second = self.movie_vector(paddle.concat(movie_parts, axis=1))
        # From -1 to 1: as far as 1 and 5 stars are from 3, and a little further.
        return 3 + 2.5 * nn.functional.cosine_similarity(first, second, axis=1).unsqueeze(1)


def _mean(rows, ids):
    known = (ids != 0).astype("float32").unsqueeze(2)
    return (rows * known).sum(1) / known.sum(1).clip(min=1.0)


def custom_model(dimension: int = 16):
    return Recommendation(dimension)


def loss(labels, predictions):
    return nn.functional.mse_loss(predictions, labels)


def optimizer(parameters):
    return paddle.optimizer.Adam(0.01, parameters=parameters)


def eval_metrics_fn():
    return {"rmse": RootMeanSquaredError(), "mae": MeanAbsoluteError()}
