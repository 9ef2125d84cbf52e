"""Data sets at URLs: of a real S3 server, and of a web server by way of fsspec."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.remote import location as location_module
from elasticdl.errors import UserError
from tests.s3_server import BUCKET


def write(bucket: Any, name: str, content: bytes) -> None:
    with bucket.open_output_stream(f"{BUCKET}/{name}", compression=None) as sink:
        sink.write(content)


def copies(tmp_path: Path) -> list[str]:
    """Names of the files that have been copied."""
    found = (tmp_path / "cache" / "remote").rglob("*")
    return sorted(path.name for path in found if path.is_file() and not path.name.startswith("."))


def test_folder_of_csv_is_read_in_order_of_keys(bucket: Any) -> None:
    write(bucket, "rows/b.csv", b"3,4\n")
    write(bucket, "rows/a.csv", b"1,2\n")
    write(bucket, "rows/_SUCCESS", b"")
    reader = open_reader(f"s3://{BUCKET}/rows", {"header": "false"})
    assert list(reader.read(0, len(reader))) == [["1", "2"], ["3", "4"]]


def test_pattern_chooses_files(bucket: Any) -> None:
    write(bucket, "rows/a.csv", b"1,2\n")
    write(bucket, "rows/b.txt", b"not data \x00")
    assert len(open_reader(f"s3://{BUCKET}/rows/*.csv", {"header": "false"})) == 1


def test_compressed_file_is_decompressed(bucket: Any) -> None:
    import gzip

    write(bucket, "a.csv.gz", gzip.compress(b"1,2\n3,4\n"))
    assert len(open_reader(f"s3://{BUCKET}/a.csv.gz", {"header": "false"})) == 2


def test_parquet_file_is_copied_when_its_rows_are_read(bucket: Any, tmp_path: Path) -> None:
    for name, values in (("a", [1, 2]), ("b", [3])):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": values}), sink)
        write(bucket, f"table/{name}.parquet", sink.getvalue().to_pybytes())
    reader = open_reader(f"s3://{BUCKET}/table")
    assert (len(reader), copies(tmp_path)) == (3, [])
    assert list(reader.read(2, 3)) == [{"x": 3}]
    assert copies(tmp_path) == ["b.parquet"]


def test_changed_object_is_copied_again(bucket: Any) -> None:
    write(bucket, "a.csv", b"1,2\n")
    assert len(open_reader(f"s3://{BUCKET}/a.csv", {"header": "false"})) == 1
    write(bucket, "a.csv", b"1,2\n3,4\n")
    assert len(open_reader(f"s3://{BUCKET}/a.csv", {"header": "false"})) == 2


def test_unchanged_object_is_not_copied_again(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write(bucket, "a.csv", b"1,2\n")
    open_reader(f"s3://{BUCKET}/a.csv")

    def fail(*_: object) -> None:
        raise AssertionError("copied again")

    monkeypatch.setattr("elasticdl.data.remote.mirror._copy", fail)
    open_reader(f"s3://{BUCKET}/a.csv")


@pytest.mark.parametrize("url", [f"s3://{BUCKET}/nothing", "s3://no-such-bucket/x", f"s3://{BUCKET}/*.csv"])
def test_missing_data_is_error_that_names_url(bucket: Any, url: str) -> None:
    with pytest.raises(UserError, match=url.replace("*", r"\*")):
        open_reader(url)


def test_unknown_scheme_is_error_that_names_it(bucket: Any) -> None:
    with pytest.raises(UserError, match="zz://"):
        open_reader("zz://host/x")


def test_request_that_fails_for_a_moment_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr("elasticdl.data.remote.location.time.sleep", delays.append)
    answers: list[Any] = [OSError("AWS Error NETWORK_CONNECTION"), OSError("AWS Error SLOW_DOWN"), "done"]

    def request() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert location_module.retried(request, doing="read x") == "done"
    assert len(delays) == 2
    assert delays[1] > 0


def test_store_that_denies_access_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticdl.data.remote.location.time.sleep", lambda _: pytest.fail("waited"))

    def request() -> None:
        raise OSError("AWS Error ACCESS_DENIED during GetObject operation")

    with pytest.raises(UserError, match="Cannot read x: AWS Error ACCESS_DENIED"):
        location_module.retried(request, doing="read x")


def test_full_cache_folder_is_error_that_names_it(
    bucket: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(bucket, "a.csv", b"1,2\n")
    monkeypatch.setenv("ELASTICDL_CACHE", "/dev/full/cache")
    with pytest.raises(UserError, match="/dev/full/cache") as raised:
        open_reader(f"s3://{BUCKET}/a.csv")
    assert "ELASTICDL_CACHE" in raised.value.hint


def test_other_schemes_are_opened_by_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICDL_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("rows/a.csv", "1,2\n3,4\n")
    reader = open_reader(f"zip://rows::{tmp_path}/rows.zip", {"header": "false"})
    assert list(reader.read(1, 2)) == [["3", "4"]]
