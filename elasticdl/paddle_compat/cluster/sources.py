"""Data of the demos: reviews with labels and ratings of movies, generated or the user's own.

Generated data is seeded and has a signal: some words are said of what people like, and a user likes movies whose
genres and popularity fit. Ratings have the three files of MovieLens 1M, so that the user's own go the same way.
"""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import UserError

_TIMEOUT_SECONDS = 60.0
_TEST_EVERY = 10
# Embeddings have a row for each id up to the largest.
_LARGEST_ID = 10_000_000
# Of MovieLens; later editions have halves.
_STARS = frozenset(f"{stars / 2:g}" for stars in range(1, 11)) | {f"{stars}.0" for stars in range(1, 6)}
_AGES = (1, 18, 25, 35, 45, 50, 56)
_OCCUPATIONS = 21
_GENRES = (
    "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
    "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western",
)  # fmt: skip
UNKNOWN_WORD = "<unk>"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of generated data."""

    reviews: int = 6000
    words: int = 500
    ratings: int = 12000
    users: int = 400
    movies: int = 250


@dataclass(frozen=True, kw_only=True)
class TextData:
    """Lines to train and to test on, and files that every node gets."""

    train: list[str]
    test: list[str]
    files: dict[str, str]


# -- reviews -------------------------------------------------------------------------------------------------


def generated_reviews(sizes: Sizes, seed: int) -> list[str]:
    random_of = random.Random(f"reviews-{seed}")
    words = [f"word{number}" for number in range(sizes.words)]
    weights = [1.0 / (rank + 10) for rank in range(sizes.words)]
    # A tenth of the words is said of good things, a tenth of bad ones.
    leaning = {word: random_of.choice((-1, 1)) if random_of.random() < 0.2 else 0 for word in words}
    lines = []
    for _ in range(sizes.reviews):
        text = random_of.choices(words, weights, k=random_of.randint(10, 40))
        score = sum(leaning[word] for word in text) + random_of.gauss(0, 0.5)
        lines.append(f"{int(score > 0)}\t{' '.join(text)}")
    return lines


def reviews(lines: list[str], origin: str) -> TextData:
    """Raises `UserError` for a line that is not a label, a tab and words."""
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines, start=1):
        label, tab, text = line.partition("\t")
        if not tab or label not in ("0", "1"):
            raise UserError(f"{origin}:{number} is not a label (0 or 1), a tab and words: {line[:60]!r}")
        counts.update(text.split())
    words = [UNKNOWN_WORD, *(word for word, _ in counts.most_common(30_000))]
    train, test = _split_off_test(lines)
    return TextData(train=train, test=test, files={"dict.txt": "".join(f"{word}\n" for word in words)})


# -- ratings -------------------------------------------------------------------------------------------------


def generated_ratings(sizes: Sizes, seed: int) -> dict[str, str]:
    """The three files of MovieLens 1M."""
    random_of = random.Random(f"ratings-{seed}")
    tastes = {(gender, age): [random_of.gauss(0, 1) for _ in _GENRES] for gender in "FM" for age in _AGES}
    movies, users, ratings = [], [], []
    genres_of: dict[int, list[int]] = {}
    fame = {}
    for movie in range(1, sizes.movies + 1):
        genres_of[movie] = sorted(random_of.sample(range(len(_GENRES)), random_of.randint(1, 3)))
        fame[movie] = random_of.gauss(0, 0.7)
        title = " ".join(f"Name{random_of.randrange(sizes.movies)}" for _ in range(random_of.randint(1, 4)))
        genres = "|".join(_GENRES[genre] for genre in genres_of[movie])
        movies.append(f"{movie}::{title} ({random_of.randint(1950, 2000)})::{genres}")
    people = {}
    for user in range(1, sizes.users + 1):
        gender, age = random_of.choice("FM"), random_of.choice(_AGES)
        people[user] = (gender, age)
        users.append(f"{user}::{gender}::{age}::{random_of.randrange(_OCCUPATIONS)}::00000")
    for _ in range(sizes.ratings):
        user, movie = random_of.randint(1, sizes.users), random_of.randint(1, sizes.movies)
        taste = tastes[people[user]]
        liking = sum(taste[genre] for genre in genres_of[movie]) / len(genres_of[movie])
        stars = round(3.2 + liking + fame[movie] + random_of.gauss(0, 0.4))
        ratings.append(f"{user}::{movie}::{min(5, max(1, stars))}::0")
    return {
        "movies.dat": "\n".join(movies),
        "users.dat": "\n".join(users),
        "ratings.dat": "\n".join(ratings),
    }


def ratings(files: dict[str, str], origin: str) -> TextData:
    """Lines in the order of the guide's slots. Raises `UserError` for files that are not MovieLens'."""
    movies: dict[str, tuple[str, str]] = {}
    words: dict[str, int] = {}
    genres: dict[str, int] = {}
    users: dict[str, tuple[str, str, str]] = {}
    ages: dict[str, int] = {}
    occupations: dict[str, int] = {}

    def number_of(known: dict[str, int], word: str) -> str:
        return str(known.setdefault(word, len(known)))

    for fields in _rows(files, "movies.dat", 3, origin):
        title = fields[1].lower().replace("(", " ").replace(")", " ").split() or ["?"]
        kinds = fields[2].split("|")
        movies[fields[0]] = (
            " ".join(number_of(words, word) for word in title),
            " ".join(number_of(genres, genre) for genre in kinds),
        )
    for fields in _rows(files, "users.dat", 4, origin):
        gender = {"F": "0", "M": "1"}.get(fields[1], "")
        if not gender:
            raise UserError(f"{origin}: users.dat has the gender {fields[1]!r}, not F or M.")
        users[fields[0]] = (gender, number_of(ages, fields[2]), number_of(occupations, fields[3]))
    if not movies or not users:
        raise UserError(f"{origin} has no {'users' if movies else 'movies'}.")
    lines = []
    for fields in _rows(files, "ratings.dat", 3, origin):
        user, movie, stars = fields[:3]
        if stars not in _STARS:
            raise UserError(f"{origin}: ratings.dat has the rating {stars[:20]!r}, not one from 1 to 5.")
        if user not in users or movie not in movies:
            raise UserError(
                f"{origin}: ratings.dat rates movie {movie} by user {user}, which are not both known."
            )
        lines.append("\t".join([movie, *movies[movie], user, *users[user], stars]))
    meta = {
        "movie_id": 1 + max(_id(movie, "movie", origin) for movie in movies),
        "title": len(words),
        "genres": len(genres),
        "user_id": 1 + max(_id(user, "user", origin) for user in users),
        "gender": 2,
        "age": len(ages),
        "occupation": len(occupations),
    }
    import json

    random.Random("order").shuffle(lines)
    train, test = _split_off_test(lines)
    return TextData(train=train, test=test, files={"meta.json": json.dumps(meta, indent=1) + "\n"})


def _lines(text: str) -> list[str]:
    """As files have them: `splitlines` also splits at characters that a line may contain."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _id(text: str, what: str, origin: str) -> int:
    """Ids number the rows of an embedding."""
    if (
        not (text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST_ID)))
        or int(text) > _LARGEST_ID
    ):
        raise UserError(f"{origin}: the id {text[:20]!r} of a {what} is no number up to {_LARGEST_ID:,}.")
    return int(text)


def _rows(files: dict[str, str], name: str, least: int, origin: str) -> Iterator[list[str]]:
    if name not in files:
        raise UserError(
            f"{origin} has no {name}: it needs movies.dat, users.dat and ratings.dat of MovieLens."
        )
    for number, line in enumerate(_lines(files[name]), start=1):
        fields = line.split("::")
        if line and len(fields) < least:
            raise UserError(f"{origin}: {name}:{number} has {len(fields)} fields between `::`, not {least}.")
        if line:
            yield fields


def _split_off_test(lines: list[str]) -> tuple[list[str], list[str]]:
    return (
        [line for number, line in enumerate(lines) if number % _TEST_EVERY],
        lines[::_TEST_EVERY],
    )


# -- the user's own ------------------------------------------------------------------------------------------


def read_reviews(origin: str) -> list[str]:
    with _fetched(origin) as path:
        try:
            text = path.read_bytes().decode()
        except OSError as error:
            raise UserError(f"{origin} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise UserError(
                f"{origin}:{line} is not UTF-8 text.", hint="Convert the file with iconv."
            ) from error
        return [line for line in _lines(text) if line.strip()]


def read_ratings(origin: str) -> dict[str, str]:
    """Reads ratings from a folder or a zip archive, as MovieLens publishes it."""
    wanted = ("movies.dat", "users.dat", "ratings.dat")
    with _fetched(origin) as path:
        if path.is_dir():
            return {name: (path / name).read_text("latin-1") for name in wanted if (path / name).is_file()}
        try:
            with zipfile.ZipFile(path) as archive:
                return {
                    Path(inner).name: io.TextIOWrapper(archive.open(inner), "latin-1").read()
                    for inner in archive.namelist()
                    if Path(inner).name in wanted
                }
        except (OSError, zipfile.BadZipFile) as error:
            raise UserError(
                f"{origin} is neither a folder nor a zip archive of MovieLens: {error}"
            ) from error


@contextlib.contextmanager
def _fetched(origin: str) -> Iterator[Path]:
    if not origin.startswith(("http://", "https://")):
        if not Path(origin).exists():
            raise UserError(f"There is no file {origin}.")
        yield Path(origin)
        return
    with tempfile.NamedTemporaryFile() as file:
        try:
            with urllib.request.urlopen(origin, timeout=_TIMEOUT_SECONDS) as answer:
                shutil.copyfileobj(answer, file)
        except (urllib.error.URLError, OSError) as error:
            raise UserError(
                f"{origin} cannot be fetched: {error}.",
                hint="Without a network, omit it: data is generated. Or name a file on the volume.",
            ) from error
        file.flush()
        yield Path(file.name)
