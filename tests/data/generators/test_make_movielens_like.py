"""Ratings like MovieLens's: the same for a seed, of any number, and not by chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.generators.movielens import AGES, COLUMNS, GENRES, make_movielens_like
from elasticdl.errors import UserError


def rows(folder: Path) -> list[list[str]]:
    reader = open_reader(str(folder))
    return [list(row) for row in reader.read(0, len(reader))]


def test_movielens_like_rows_have_valid_columns(tmp_path: Path) -> None:
    made = make_movielens_like(tmp_path / "made", rows=300, test_rows=20, users=30, movies=20)
    assert made.samples == {"train": 300, "test": 20}
    found = rows(tmp_path / "made" / "train")
    assert len(found) == 300
    for row in found:
        user, gender, age, occupation, movie, title, genres, rating = row
        assert len(row) == len(COLUMNS)
        assert 1 <= int(user) <= 30
        assert 1 <= int(movie) <= 20
        assert gender in "FM"
        assert int(age) in AGES
        assert 0 <= int(occupation) < 21
        assert title.endswith(")")
        assert set(genres.split("|")) <= set(GENRES)
        assert 1 <= int(rating) <= 5


def test_the_same_seed_gives_the_same_rows_and_fewer_are_the_first_of_more(tmp_path: Path) -> None:
    for name, count, seed in (("one", 200, 1), ("more", 400, 1), ("other", 200, 2)):
        make_movielens_like(tmp_path / name, rows=count, test_rows=0, users=50, movies=30, seed=seed)
    one, more, other = (rows(tmp_path / name / "train") for name in ("one", "more", "other"))
    assert one == more[:200]
    assert one != other


def test_ratings_depend_on_group_and_movie(tmp_path: Path) -> None:
    make_movielens_like(tmp_path / "made", rows=20_000, test_rows=0, users=300, movies=40)
    found = rows(tmp_path / "made" / "train")
    ratings = np.array([float(row[-1]) for row in found])
    cells: dict[tuple[str, str, str], list[float]] = {}
    for row, rating in zip(found, ratings.tolist(), strict=True):
        cells.setdefault((row[1], row[2], row[4]), []).append(rating)
    left = sum(float(np.square(np.array(some) - np.mean(some)).sum()) for some in cells.values())
    assert left / len(found) < 0.5 * ratings.var()


def test_nothing_to_make(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be 1 at least"):
        make_movielens_like(tmp_path / "made", rows=0)
