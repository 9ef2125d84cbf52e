"""Generates ratings of movies, of any size, that look like MovieLens's and from which a model can learn.

A row is a rating: the user with gender, age and occupation, the movie with title and genres, and 1 to 5 stars. Users
and movies are drawn by their popularity. Each group of users (gender and age) has a taste in genres, each movie is good
or bad in itself, and so is each user's mood; the rating is their sum, with noise, rounded. A model that learns tastes
and movies predicts ratings far better than their mean.

Rows are drawn in blocks, each with its own generator, seeded by the seed, the part and the block's number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.dataset_writer import new_folder
from elasticdl.data.generators.bundled import Made, Progress, silent, split_files
from elasticdl.errors import UserError

COLUMNS = ("user", "gender", "age", "occupation", "movie", "title", "genres", "rating")
GENDERS = ("F", "M")
AGES = (1, 18, 25, 35, 45, 50, 56)
OCCUPATIONS = 21
GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
_WORDS = (
    "Blue", "City", "Day", "Dream", "First", "Ghost", "Green", "House", "Island", "King", "Last", "Lost", "Man",
    "Moon", "Night", "River", "Road", "Silent", "Star", "Storm", "Story", "Summer", "Time", "Winter", "World",
)  # fmt: skip
_BLOCK_ROWS = 1 << 14
_MOST_GENRES, _MOST_WORDS = 3, 3
_NOISE = 0.4


def make_movielens_like(
    output: Path,
    *,
    rows: int,
    test_rows: int | None = None,
    users: int = 6040,
    movies: int = 3952,
    records_per_file: int = 1_000_000,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Made:
    """Generates so many rows in `train`, and a tenth as many (or `test_rows`) in `test`, as CSV without a header."""
    if min(rows, users, movies, records_per_file) < 1:
        raise UserError("rows, users, movies and records_per_file must be 1 at least.")
    samples = {"train": rows, "test": max(1, rows // 10) if test_rows is None else test_rows}
    world = _World(users, movies, seed)
    with new_folder(output, overwrite=overwrite) as folder:
        for number, (part, count) in enumerate(samples.items()):
            if not count:
                continue
            with split_files(folder / part, "ratings", "csv", records_per_file) as writer:
                for row in _rows(world, count, seed, number):
                    writer.write(row)
                    progress(1)
    return Made(folder=output, samples=samples)


class _World:
    """The users, their tastes and the movies: the same for all rows of a seed."""

    def __init__(self, users: int, movies: int, seed: int) -> None:
        random = np.random.default_rng((seed, 1 << 20))
        self.users, self.movies = users, movies
        self.gender = random.integers(0, len(GENDERS), users)
        self.age = random.integers(0, len(AGES), users)
        self.occupation = random.integers(0, OCCUPATIONS, users)
        self.mood = random.normal(0, 0.3, users)
        counts = random.integers(1, _MOST_GENRES + 1, movies)
        self.genres = [np.sort(random.choice(len(GENRES), count, replace=False)) for count in counts]
        words = random.integers(0, len(_WORDS), (movies, _MOST_WORDS))
        years = random.integers(1930, 2000, movies)
        self.titles = [
            f"{' '.join(_WORDS[word] for word in some)} ({year})"
            for some, year in zip(words.tolist(), years.tolist(), strict=True)
        ]
        quality = random.normal(0, 0.5, movies)
        taste = random.normal(0, 1.0, (len(GENDERS), len(AGES), len(GENRES)))
        # The preference of each group of users for each movie.
        self.appeal: NDArray[Any] = np.stack(
            [taste[:, :, genres].mean(axis=2) for genres in self.genres], axis=2
        )
        self.appeal += 3.3 + quality


def _rows(world: _World, count: int, seed: int, part: int) -> Iterator[list[str]]:
    made = 0
    while made < count:
        # A block is always drawn whole, so that its rows do not depend on how many are wanted.
        random = np.random.default_rng((seed, part, made // _BLOCK_ROWS))
        users = (world.users * random.random(_BLOCK_ROWS) ** 2).astype(np.int64)
        movies = (world.movies * random.random(_BLOCK_ROWS) ** 2).astype(np.int64)
        stars = world.appeal[world.gender[users], world.age[users], movies] + world.mood[users]
        stars = np.clip(np.rint(stars + random.normal(0, _NOISE, _BLOCK_ROWS)), 1, 5).astype(np.int64)
        for user, movie, star in zip(
            users[: count - made].tolist(), movies.tolist(), stars.tolist(), strict=False
        ):
            yield [
                str(user + 1),
                GENDERS[world.gender[user]],
                str(AGES[world.age[user]]),
                str(world.occupation[user]),
                str(movie + 1),
                world.titles[movie],
                "|".join(GENRES[genre] for genre in world.genres[movie]),
                str(star),
            ]
        made += _BLOCK_ROWS
