"""What a user can get wrong about a data set is said in words, with the right word where there is one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.data.dataset import open_reader


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "table.csv"
    path.parent.mkdir()
    path.write_text("1,2\n")
    return path


def test_a_path_that_does_not_exist(csv: Path, refused: Callable[..., str]) -> None:
    message = refused(csv.parent / "tables.csv")
    assert f"There is no file or folder {csv.parent}/tables.csv" in message
    assert f"Did you mean {csv}?" in message


def test_missing_folder_is_refused_with_nearest_existing(csv: Path, refused: Callable[..., str]) -> None:
    message = refused(csv.parent / "deep" / "er" / "x.csv")
    assert f"The nearest folder that exists is {csv.parent}" in message


def test_an_empty_path(refused: Callable[..., str]) -> None:
    assert "empty" in refused("")


def test_an_empty_folder(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert f"The folder {tmp_path} holds no data files." in refused(tmp_path)
    (tmp_path / ".hidden").write_text("x")
    assert "holds no data files" in refused(tmp_path)


def test_a_pattern_without_match(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "No file matches" in refused(tmp_path / "*.csv")


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv", b""), ("x.csv", b"\n\n"), ("x.recordio", b""), ("x.tfrecord", b""), ("x", b"")],
)
def test_no_samples(tmp_path: Path, refused: Callable[..., str], name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert "has no samples" in refused(tmp_path)
    assert "has no samples" in refused(tmp_path / name)


def test_a_header_alone_is_no_sample(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "x.csv").write_text("a,b\n")
    assert "has no samples" in refused(tmp_path, {"header": "true"})


def test_undetectable_format_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(range(256)))
    message = refused(tmp_path)
    assert f"Cannot tell the format of {tmp_path}/x.bin" in message
    assert "recordio" in message


def test_a_format_that_does_not_exist(csv: Path, refused: Callable[..., str]) -> None:
    message = refused(csv, {"format": "recordoi"})
    assert "no format 'recordoi'" in message
    assert "Did you mean recordio?" in message


def test_folder_of_several_formats_is_refused(
    csv: Path, refused: Callable[..., str], write_recordio: Callable[..., Path]
) -> None:
    write_recordio(csv.parent / "x.recordio", [b"x"])
    message = refused(csv.parent)
    assert "several formats" in message
    assert f"{csv} is csv" in message
    assert f"{csv.parent}/x.recordio is recordio" in message


def test_a_parameter_that_does_not_exist(csv: Path, refused: Callable[..., str]) -> None:
    message = refused(csv, {"seperator": ";"})
    assert "The reader of csv has no parameter 'seperator'" in message
    assert "Did you mean sep?" in refused(csv, {"sepp": ";"})
    assert "encoding, format, header, quote, ragged, sep" in message


def test_a_parameter_of_another_format(csv: Path, refused: Callable[..., str]) -> None:
    message = refused(csv, {"columns": "[a,b]"})
    assert "'columns' is for parquet; this data is csv" in message


def test_file_of_another_format_than_its_suffix_is_refused(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "x.parquet").write_text("1,2\n")
    assert "cannot be read as Parquet" in refused(tmp_path)
    (tmp_path / "x.parquet").unlink()
    (tmp_path / "x.idx").write_text("1,2\n")
    assert "is not an idx file" in refused(tmp_path)


def test_pipe_is_rejected(tmp_path: Path, refused: Callable[..., str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in refused(tmp_path / "pipe")


def test_a_folder_that_may_not_be_listed(
    refused: Callable[..., str], as_other_user: Callable[[Callable[[], None]], None]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "a.csv").write_text("1,2\n")
        (root / "secret").mkdir()
        (root / "secret").chmod(0o700 if os.geteuid() == 0 else 0)

        def work() -> None:
            assert f"Cannot read {root}: Permission denied" in refused(root)

        as_other_user(work)
        (root / "secret").chmod(0o700)


def test_a_file_that_changes_while_it_is_read(csv: Path) -> None:
    from elasticdl.errors import UserError

    reader = open_reader(str(csv))
    csv.write_text("1,2\n3,4\n")
    with pytest.raises(UserError, match=r"table\.csv has changed"):
        list(reader.read(0, 1))


def test_a_file_that_is_gone(csv: Path) -> None:
    from elasticdl.errors import UserError

    reader = open_reader(str(csv))
    os.unlink(csv)
    with pytest.raises(UserError, match=r"Cannot read .*table\.csv: No such file"):
        list(reader.read(0, 1))


def test_indices_outside_the_data_are_a_defect_of_the_caller(csv: Path) -> None:
    reader = open_reader(str(csv))
    for start, end in ((-1, 0), (0, 2), (1, 0)):
        with pytest.raises(IndexError):
            reader.read(start, end)
