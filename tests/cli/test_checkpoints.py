"""`elasticdl checkpoints`: what a person types, and what they see."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from elasticdl.ps.checkpoint.array_file import ArrayFileWriter
from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, SavedFile, manifest_crc32, write_manifest
from elasticdl.ps.checkpoint.table_files import TABLES, describe, write_table
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Frozen, Table, TableSpec
from elasticdl.wire import ps_pb2

ROWS = 3000


def new_table(name: str, width: int) -> Table:
    config = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")
    table = Table(TableSpec(name=name, width=width), make_optimizer(config), buckets=8)
    table.update(np.arange(ROWS), np.ones((ROWS, width), np.float32), learning_rate=0.5)
    return table


def write(folder: Path, tables: list[Table], since: list[Frozen] | None = None) -> list[Frozen]:
    """A checkpoint of two parameters and some tables; of changes only, if `since` is given."""
    step = 200 if since else 100
    place = folder / f"version-{step}"
    place.mkdir(parents=True)
    copies = [table.freeze() for table in tables]
    with ArrayFileWriter(place / "ps-0-of-1.edl") as file:
        file.add("trainable", "kernel", np.zeros((2, 2), np.float32))
        file.add("trainable", "bias", np.zeros(2, np.float32))
        for number, (table, copy) in enumerate(zip(tables, copies, strict=True)):
            bases = dict.fromkeys(range(8), since[number]) if since else {}
            write_table(file, table, copy, buckets=range(8), since=bases)
        descriptions = {table.spec.name: describe(table).as_json() for table in tables}
        size, crc32 = file.finish({TABLES: descriptions, "optimizer": {"name": "adagrad"}})
    manifest = Manifest(
        step=step,
        files=(SavedFile(name="ps-0-of-1.edl", bytes=size, crc32=crc32),),
        attributes={"job": "clicks", "model_def": "criteo.deepfm.custom_model"},
        base="version-100" if since else "",
        base_crc32=(manifest_crc32(folder / "version-100") or 0) if since else 0,
    )
    write_manifest(place, manifest, None)
    return copies


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "saved", [new_table("user", 3), new_table("item", 2)])
    return tmp_path / "saved"


def test_describe_shows_tables_of_checkpoint(elasticdl: Any, folder: Path) -> None:
    result = elasticdl("checkpoints", "describe", str(folder))
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0].startswith(
        f"{folder / 'version-100'}: step 100, job clicks, criteo.deepfm.custom_model, trained by adagrad, "
    )
    assert "trainable: 2 arrays" in lines
    assert [line.split()[:4] for line in lines[-2:]] == [
        ["item", "3,000", "2", "accumulator"],
        ["user", "3,000", "3", "accumulator"],
    ]


def test_rows_of_increments_are_counted_once(elasticdl: Any, tmp_path: Path) -> None:
    table = new_table("user", 3)
    since = write(tmp_path / "x", [table])
    table.update(np.arange(ROWS - 5, ROWS + 5), np.ones((10, 3), np.float32), learning_rate=0.5)
    write(tmp_path / "x", [table], since)
    document = json.loads(elasticdl("checkpoints", "describe", str(tmp_path / "x"), "--json").out)
    assert document["step"] == 200
    assert document["needs"] == ["version-100"]
    assert document["tables"][0]["rows"] == ROWS + 5
    assert "needs beside it" in elasticdl("checkpoints", "describe", str(tmp_path / "x")).out
    output = tmp_path / "user.parquet"
    assert elasticdl("checkpoints", "export", str(tmp_path / "x"), str(output)).code == 0
    read = pq.read_table(output)
    ids = read["id"].to_numpy()
    np.testing.assert_array_equal(np.sort(ids), np.arange(ROWS + 5))
    np.testing.assert_array_equal(np.stack(read["values"].to_pylist()), table.gather(ids))


def test_a_single_file(elasticdl: Any, folder: Path) -> None:
    result = elasticdl("checkpoints", "describe", str(folder / "version-100" / "ps-0-of-1.edl"))
    assert result.code == 0, result.err
    assert "user   3,000" in result.out


@pytest.mark.parametrize("flags", [[], ["--slots"]])
def test_export_writes_rows_of_table(elasticdl: Any, folder: Path, tmp_path: Path, flags: list[str]) -> None:
    output = tmp_path / "user.parquet"
    result = elasticdl("checkpoints", "export", str(folder), str(output), "--table=user", *flags)
    assert result.code == 0, result.err
    assert result.out.startswith(f"{output}: 3000 rows of user, ")
    read = pq.read_table(output)
    assert read.column_names == ["id", "values", *(["accumulator"] if flags else [])]
    assert str(read.schema.field("id").type) == "int64"
    assert "float" in str(read.schema.field("values").type)
    assert len(read) == ROWS


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{folder}", "{new}", "--table=usr"], ["no table 'usr'. Did you mean user?", "item, user"]),
        (["{folder}", "{new}"], ["has 2 tables, and --table names none", "item, user"]),
        (["{old}", "{new}", "--table=user"], ["There is no checkpoint at"]),
        (["{folder}", "{old}", "--table=user"], ["is there already", "--overwrite"]),
        (["{folder}", "{nowhere}", "--table=user"], ["Cannot write", "No such file"]),
    ],
)
def test_invalid_export_is_rejected_without_effect(
    elasticdl: Any, folder: Path, tmp_path: Path, words: list[str], said: list[str]
) -> None:
    old = tmp_path / "old.parquet"
    old.write_text("something")
    places = {
        "folder": folder,
        "old": old,
        "new": tmp_path / "new.parquet",
        "nowhere": tmp_path / "nowhere" / "x.parquet",
    }
    result = elasticdl("checkpoints", "export", *(word.format(**places) for word in words))
    assert result.code == 2
    for part in said:
        assert part in result.err
    assert old.read_text() == "something"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.parquet", "saved"]


def test_a_file_is_replaced_if_that_is_wanted(elasticdl: Any, folder: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.parquet"
    old.write_text("something")
    words = ["checkpoints", "export", str(folder), str(old), "--table=user", "--overwrite"]
    assert elasticdl(*words).code == 0
    assert len(pq.read_table(old)) == ROWS


def test_a_damaged_table_leaves_no_file(elasticdl: Any, folder: Path, tmp_path: Path) -> None:
    file = folder / "version-100" / "ps-0-of-1.edl"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    for table in ("user", "item"):
        words = [str(folder), str(tmp_path / f"{table}.parquet"), f"--table={table}"]
        result = elasticdl("checkpoints", "export", *words)
        if result.code:
            assert "is damaged: the checksum of" in result.err
            assert not (tmp_path / f"{table}.parquet").exists()
            return
    pytest.fail("the damage was not found")


def test_a_full_disk(folder: Path, tmp_path: Path) -> None:
    """A limit on the size of files is to a program what a full disk is."""
    program = textwrap.dedent(
        """
        import resource, signal, sys
        from elasticdl.cli.main import main
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        # A limit on the size of files would truncate what Python caches of a module, for good.
        sys.dont_write_bytecode = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        sys.exit(main(["checkpoints", "export", *sys.argv[1:]]))
        """
    )
    words = [str(folder), str(tmp_path / "user.parquet"), "--table=user"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "user.parquet: there is no room" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
