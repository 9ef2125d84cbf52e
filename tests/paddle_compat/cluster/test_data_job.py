"""The data job: idempotent, atomic, and clear about what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.data_job import DataJob, check_volume, read_data_job
from elasticdl.paddle_compat.cluster.sources import Sizes, ratings, read_ratings, read_reviews

_SIZES = Sizes(reviews=60, ratings=60)


def job(folder: Path, *, seed: int = 0, split_count: int = 3, quick_start: str = "") -> DataJob:
    return DataJob(out_dir=folder, split_count=split_count, seed=seed, quick_start=quick_start, sizes=_SIZES)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_folders_are_those_of_the_guide(tmp_path: Path) -> None:
    assert job(tmp_path).run()
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == [
        "0",
        "1",
        "2",
        "output",
        "quick_start",
        "recommendation",
    ]
    assert (tmp_path / "2" / "data").is_dir()
    assert (tmp_path / "quick_start" / "trainer_config.lr.py").is_file()


def test_nodes_share_the_samples_without_overlap(tmp_path: Path) -> None:
    job(tmp_path / "three").run()
    job(tmp_path / "one", split_count=1).run()
    for name in ("quick_start", "recommendation"):

        def lines(folder: Path, name: str = name) -> list[str]:
            return (folder / "data" / name / "train.txt").read_text().splitlines()

        parts = [line for number in "012" for line in lines(tmp_path / "three" / number)]
        assert sorted(parts) == sorted(lines(tmp_path / "one" / "0"))


def test_second_run_changes_nothing(tmp_path: Path) -> None:
    job(tmp_path).run()
    before = files_of(tmp_path)
    assert not job(tmp_path).run()
    assert files_of(tmp_path) == before


def test_run_after_a_killed_one_makes_all_of_it(tmp_path: Path) -> None:
    job(tmp_path / "whole").run()
    killed = tmp_path / "killed"
    job(killed).run()
    # As far as a killed run may have come: some folders in place, another one half-way, no mark.
    (killed / ".data.json").unlink()
    (killed / "1").rename(killed / ".1234.part")
    (killed / "0" / "data" / "quick_start" / "train.txt").write_text("")
    assert job(killed).run()
    assert files_of(killed) == files_of(tmp_path / "whole")
    assert not list(killed.glob(".*.part"))


def test_other_data_is_not_overwritten(tmp_path: Path) -> None:
    job(tmp_path).run()
    with pytest.raises(UserError, match="split_count 3 in place of 2"):
        job(tmp_path, split_count=2).run()


def test_fewer_samples_than_nodes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fewer than SPLIT_COUNT=1000"):
        job(tmp_path / "new", split_count=1000).run()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "words"), [("1\tfine\nbad\n", ":2 is not a label"), ("2\tfine\n", ":1 is not a label")]
)
def test_line_of_the_users_file_that_does_not_fit_is_named(tmp_path: Path, text: str, words: str) -> None:
    own = tmp_path / "reviews.txt"
    own.write_text(text)
    with pytest.raises(UserError) as caught:
        job(tmp_path / "out", quick_start=str(own)).run()
    assert f"{own}{words}" in caught.value.message


def test_missing_file_of_the_user_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no file .*none\.txt"):
        job(tmp_path / "out", quick_start=str(tmp_path / "none.txt")).run()


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    # The kernel makes no folders there, for no user.
    for out_dir in (tmp_path / "file", tmp_path / "file" / "job", Path("/sys/kernel/job")):
        with pytest.raises(UserError) as caught:
            job(out_dir).run()
        assert f"{out_dir} (OUT_DIR) cannot be written: {out_dir}: " in caught.value.message
        assert "Choose another OUT_DIR" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "OUT_DIR is not set (the guide: /home/work/mfs/paddle-cluster-job)"),
        ({"OUT_DIR": "x"}, "SPLIT_COUNT is not set (the guide: 3)"),
        ({"OUT_DIR": "x", "SPLIT_COUNT": "three"}, "not 'three' (the guide: 3)"),
        ({"OUT_DIR": "x", "SPLIT_COUNT": "3", "DATA_REVIEWS": "0"}, "DATA_REVIEWS must be a whole number"),
    ],
)
def test_variable_that_is_missing_or_wrong_is_named(given: dict[str, str], words: str) -> None:
    with pytest.raises(UserError) as caught:
        read_data_job(given)
    assert words in caught.value.message


def test_folder_on_no_volume_is_refused_with_the_mount_path(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("overlay / overlay rw 0 0\nproc /proc proc rw 0 0\n/dev/sda1 /mnt ext4 rw 0 0\n")
    out_dir = tmp_path / "mfs" / "paddle-cluster-job"
    with pytest.raises(UserError) as caught:
        check_volume(out_dir, root=tmp_path, mounts=mounts)
    assert "is on no volume" in caught.value.message
    assert "Volumes are mounted at /mnt" in caught.value.message
    assert f"mountPath: {out_dir.parent}" in caught.value.hint


def test_folder_on_a_volume_is_accepted(tmp_path: Path) -> None:
    check_volume(tmp_path / "new", root=Path("/proc"))


def write_movielens(folder: Path, movies: str, users: str, ratings: str) -> Path:
    for name, text in (("movies", movies), ("users", users), ("ratings", ratings)):
        (folder / f"{name}.dat").write_text(text, "latin-1")
    return folder


GOOD = (
    "1::Toy\x85 Story (1995)::Comedy\r\n2::Heat::Crime\n",
    "1::F::18::3::0\n",
    "1::1::5::0\n" * 5 + "1::2::3.5::0",
)


def test_files_of_movielens_are_read_line_by_line(tmp_path: Path) -> None:
    """Titles in Latin-1 have characters at which `splitlines` splits."""
    made = ratings(read_ratings(str(write_movielens(tmp_path, *GOOD))), "mine")
    assert len(made.train) + len(made.test) == 6


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        (0, "one::Toy Story::Comedy\n", "the id 'one' of a movie is no number"),
        (0, "99999999999::Toy Story::Comedy\n", "the id '99999999999' of a movie is no number up to"),
        (0, "", "mine has no movies"),
        (1, "", "mine has no users"),
        (1, "-1::F::18::3::0\n", "the id '-1' of a user"),
        (2, "1::1::good::0\n", "the rating 'good', not one from 1 to 5"),
        (2, "1::1::nan::0\n", "the rating 'nan', not one from 1 to 5"),
    ],
)
def test_field_of_movielens_that_does_not_fit_is_named(
    tmp_path: Path, file: int, text: str, words: str
) -> None:
    texts = list(GOOD)
    texts[file] = text
    if file < 2:
        texts[2] = (
            texts[2] if not text else f"{text.split('::')[0] if file else '1'}::{text.split('::')[0]}::5::0\n"
        )
        texts[2] = texts[2].replace("-1::-1", "-1::1")
    with pytest.raises(UserError, match=words):
        ratings(read_ratings(str(write_movielens(tmp_path, *texts))), "mine")


def test_reviews_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    file = tmp_path / "reviews.txt"
    file.write_bytes("1\tgood\n0\t很差\n".encode("gbk"))
    with pytest.raises(UserError, match=r"reviews.txt:2 is not UTF-8"):
        read_reviews(str(file))
    file.write_text("1\tgood\u2028 film\r\n0\t很差\n")
    assert read_reviews(str(file)) == ["1\tgood\u2028 film", "0\t很差"]
