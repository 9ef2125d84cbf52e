"""From one format to another: columns become features of Examples and back, records are copied where they can be."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.conversion import Conversion, convert
from elasticdl.data.dataset import open_reader
from elasticdl.data.example import decode_example, encode_example
from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError


def content(path: Path, params: dict[str, str] | None = None) -> list[Any]:
    reader = open_reader(str(path), params)
    return list(reader.read(0, len(reader)))


def features_in(path: Path) -> list[dict[str, Any]]:
    return [decode_example(record) for record in content(path)]


def turn(
    source: Path, destination: Path, params: dict[str, str] | None = None, **settings: Any
) -> Conversion:
    return convert(open_reader(str(source), params), destination, **settings)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text('id,x,name,empty\n1,0.5,ann,\n2,,"b,\nb",\n3,1e3,007,\n')
    return path


def test_csv_to_examples(table: Path, tmp_path: Path) -> None:
    assert turn(table, tmp_path / "t.recordio").records == 3
    first, second, third = features_in(tmp_path / "t.recordio")
    assert list(first) == ["id", "x", "name", "empty"]
    assert first["id"].dtype == np.int64
    assert first["x"].dtype == np.float32
    assert (first["id"].tolist(), first["x"].tolist(), first["name"]) == ([1], [0.5], [b"ann"])
    assert (second["x"], second["name"]) == ([], [b"b,\nb"])
    assert (third["x"].tolist(), third["name"], third["empty"]) == ([1000.0], [b"007"], [])


def test_csv_to_parquet(table: Path, tmp_path: Path) -> None:
    turn(table, tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {
        "id": [1, 2, 3],
        "x": [0.5, None, 1000.0],
        "name": ["ann", "b,\nb", "007"],
        "empty": [None, None, None],
    }


@pytest.mark.parametrize("through", ["recordio", "tfrecord", "parquet"])
def test_csv_and_back(table: Path, tmp_path: Path, through: str) -> None:
    turn(table, tmp_path / f"t.{through}")
    turn(tmp_path / f"t.{through}", tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == 'id,x,name,empty\n1,0.5,ann,\n2,,"b,\nb",\n3,1000.0,007,\n'


def test_columns_without_names_get_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,a\n2,b\n")
    turn(tmp_path / "x.csv", tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").to_pydict() == {"column_0": [1, 2], "column_1": ["a", "b"]}


def test_records_are_copied_between_recordio_and_tfrecord(
    tmp_path: Path, write_recordio: Callable[..., Path]
) -> None:
    records = [b"no example", b"", b"\xff" * 1000]
    write_recordio(tmp_path / "x.recordio", records)
    turn(tmp_path / "x.recordio", tmp_path / "x.tfrecord")
    turn(tmp_path / "x.tfrecord", tmp_path / "y.recordio", compression="gzip")
    assert content(tmp_path / "x.tfrecord") == content(tmp_path / "y.recordio") == records


def test_lists_in_csv_are_columns_with_numbers(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    records = [
        encode_example({"v": np.array([0.1, number], np.float32), "label": number}) for number in range(3)
    ]
    write_recordio(tmp_path / "x.recordio", records)
    turn(tmp_path / "x.recordio", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == "v[0],v[1],label\n0.1,0.0,0\n0.1,1.0,1\n0.1,2.0,2\n"
    turn(tmp_path / "x.csv", tmp_path / "y.recordio")
    assert content(tmp_path / "y.recordio") == records


def test_lists_in_parquet_are_lists(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    records = [encode_example({"v": np.arange(number), "s": [b"a"] * number}) for number in (2, 3)]
    write_recordio(tmp_path / "x.recordio", records)
    turn(tmp_path / "x.recordio", tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").to_pydict() == {
        "v": [[0, 1], [0, 1, 2]],
        "s": [["a", "a"], ["a", "a", "a"]],
    }
    turn(tmp_path / "x.parquet", tmp_path / "y.tfrecord")
    assert content(tmp_path / "y.tfrecord") == records


def test_bytes_stay_bytes(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    records = [encode_example({"raw": b"\xff\x00", "mixed": value}) for value in (b"text", b"\xff")]
    write_recordio(tmp_path / "x.recordio", records)
    turn(tmp_path / "x.recordio", tmp_path / "x.parquet")
    turn(tmp_path / "x.parquet", tmp_path / "y.recordio")
    assert content(tmp_path / "y.recordio") == records


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"raw": b"\xff"}, "'raw' holds bytes that are not text"),
        ({"v": np.arange(9)}, "'v' holds lists of varying"),
    ],
)
def test_features_without_csv_form_are_rejected(
    tmp_path: Path, write_recordio: Callable[..., Path], features: dict[str, Any], words: str
) -> None:
    write_recordio(
        tmp_path / "x.recordio", [encode_example(features), encode_example({"v": [1, 2], "raw": "x"})]
    )
    with pytest.raises(UserError, match=words):
        turn(tmp_path / "x.recordio", tmp_path / "x.csv")
    assert not (tmp_path / "x.csv").exists()


def test_records_that_are_no_examples_have_no_columns(
    tmp_path: Path, write_recordio: Callable[..., Path]
) -> None:
    write_recordio(tmp_path / "x.recordio", [b"\xff\xff"])
    with pytest.raises(UserError, match="Record 0 is not an Example"):
        turn(tmp_path / "x.recordio", tmp_path / "x.csv")


def test_columns_of_several_types(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    write_recordio(tmp_path / "x.recordio", [encode_example({"a": 1}), encode_example({"a": b"x"})])
    with pytest.raises(UserError, match="Column 'a' is int64 in some records, but str in record 1"):
        turn(tmp_path / "x.recordio", tmp_path / "x.parquet")


def test_images_become_examples(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/1.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True)
        (tmp_path / "images" / name).write_bytes(b"\x89PNG\r\n\x1a\n" + name.encode())
    turn(tmp_path / "images", tmp_path / "x.tfrecord")
    features = features_in(tmp_path / "x.tfrecord")
    assert [(f["image"][0][8:], f["label"].tolist()) for f in features] == [
        (b"cat/1.png", [0]),
        (b"dog/1.png", [1]),
    ]
    assert features[1]["path"] == [str(tmp_path / "images/dog/1.png").encode()]


def test_idx_becomes_examples_like_those_of_mnist(tmp_path: Path) -> None:
    (tmp_path / "x.idx").write_bytes(b"\0\0\x08\x03\0\0\0\x02\0\0\0\x02\0\0\0\x01\x01\x02\x03\xff")
    turn(tmp_path / "x.idx", tmp_path / "x.recordio")
    features = features_in(tmp_path / "x.recordio")
    assert [f["image"].tolist() for f in features] == [[1.0, 2.0], [3.0, 255.0]]
    assert features[0]["image"].dtype == np.float32


def test_a_folder_of_files(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    records = [b"%d" % number for number in range(25)]
    write_recordio(tmp_path / "x.recordio", records)
    turn(tmp_path / "x.recordio", tmp_path / "out", format="tfrecord", records_per_file=10)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["data-00000.tfrecord", "data-00001.tfrecord", "data-00002.tfrecord"]
    assert content(tmp_path / "out") == records


def test_compressed_output(table: Path, tmp_path: Path) -> None:
    turn(table, tmp_path / "t.csv.gz", compression="gzip")
    assert gzip.decompress((tmp_path / "t.csv.gz").read_bytes()).decode() == table.read_text()
    turn(table, tmp_path / "out", format="csv", compression="gzip", records_per_file=2)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "data-00000.csv.gz",
        "data-00001.csv.gz",
    ]
    assert content(tmp_path / "out") == content(table)
    for compression in ("snappy", "zstd", "gzip", "none"):
        turn(table, tmp_path / f"{compression}.parquet", compression=compression)
        assert len(content(tmp_path / f"{compression}.parquet")) == 3


def test_damaged_records_stop_it(table: Path, tmp_path: Path) -> None:
    table.write_text(table.read_text() + "4\n")
    for destination in (tmp_path / "x.recordio", tmp_path / "folder"):
        with pytest.raises(BadRecords, match="Corrupt data"):
            turn(table, destination, format="recordio")
        assert not destination.exists()


def test_damaged_records_are_left_out_if_so_many_are_allowed(table: Path, tmp_path: Path) -> None:
    table.write_text(table.read_text() + "4\n5,2,cec,\n6\n")
    done = turn(table, tmp_path / "x.parquet", max_bad_records=2)
    assert done.records == 4
    assert [(bad.start, bad.end) for bad in done.bad] == [(3, 4), (5, 6)]
    with pytest.raises(UserError, match="2 samples and more"):
        turn(table, tmp_path / "y.parquet", max_bad_records=1)


def test_existing_files_are_kept(table: Path, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("precious")
    with pytest.raises(UserError, match="exists") as error:
        turn(table, tmp_path / "x.parquet")
    assert "--overwrite" in error.value.hint
    turn(table, tmp_path / "x.parquet", overwrite=True)
    assert len(content(tmp_path / "x.parquet")) == 3


@pytest.mark.parametrize(
    ("name", "settings_", "words"),
    [
        ("x", {}, "Cannot tell"),
        ("x", {"format": "parket"}, "Did you mean parquet"),
        ("x.csv", {"format": "parquet"}, "is named like csv"),
        ("x.csv", {"compression": "snappy"}, "cannot be compressed with 'snappy'"),
        ("x.csv", {"records_per_file": 5}, "is one file"),
    ],
)
def test_invalid_target_or_settings_are_rejected(
    table: Path, tmp_path: Path, name: str, settings_: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        turn(table, tmp_path / "out" / name, **settings_)
    assert not (tmp_path / "out").exists()


number = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(number, st.floats(allow_nan=False, allow_infinity=False), text), min_size=1, max_size=20
    ),
    through=st.lists(st.sampled_from(["csv", "parquet"]), min_size=1, max_size=3),
)
def test_tables_survive_any_way(
    fresh: Callable[[str], Path], rows: list[tuple[int, float, str]], through: list[str]
) -> None:
    # A letter keeps the text from being taken for a number, or for missing.
    source = fresh("source.parquet")
    import pyarrow as pa

    columns = list(zip(*[(i, f, "t" + t) for i, f, t in rows], strict=True))
    pq.write_table(pa.table(dict(zip(("i", "f", "t"), map(list, columns), strict=True))), source)
    expected = content(source)
    for step, format_ in enumerate(through):
        destination = source.with_name(f"{step}.{format_}")
        turn(source, destination, {"header": "true"} if source.suffix == ".csv" else None)
        source = destination
    turn(source, source.with_name("end.parquet"), {"header": "true"} if source.suffix == ".csv" else None)
    assert [list(row.values()) for row in content(source.with_name("end.parquet"))] == [
        list(row.values()) for row in expected
    ]
