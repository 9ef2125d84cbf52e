"""Parts of predictions become one file that has every sample; if some are missing, that is an error."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.worker.scoring.prediction import (
    discard_parts,
    merge_parts,
    output_file,
    parts_folder,
    write_part,
)


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return JobSpec.build(
        kind="predict",
        job_name="p",
        model_zoo="zoo",
        model_def="m.custom_model",
        prediction_data="data",
        checkpoint_dir_for_init="checkpoint",
        output=str(tmp_path / "out.parquet"),
    )


def write(spec: JobSpec, start: int, end: int, *, value: float = 1.0) -> None:
    values = np.full(end - start, value) + np.arange(start, end)
    write_part(parts_folder(spec), start, end, [(start, {"output": values})])


def outputs(spec: JobSpec) -> list[float]:
    table = pq.read_table(output_file(spec))
    assert table["index"].to_pylist() == list(range(table.num_rows))
    return list(table["output"].to_pylist())


def test_parts_in_any_order_and_done_twice_become_one_file(spec: JobSpec) -> None:
    for start, end in ((8, 12), (0, 4), (4, 12), (0, 8)):
        write(spec, start, end)
    assert merge_parts(spec, 12) == [f"12 predictions: {output_file(spec)}"]
    assert outputs(spec) == [1.0 + sample for sample in range(12)]
    discard_parts(spec)
    assert [path.name for path in output_file(spec).parent.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize(
    ("missing", "words"), [((0, 4), r"\[0, 4\)"), ((4, 8), r"\[4, 8\)"), ((8, 12), r"\[8, 12\)")]
)
def test_missing_part_is_an_error_and_leaves_an_older_file(
    spec: JobSpec, missing: tuple[int, int], words: str
) -> None:
    """As where workers on several machines have a folder each that only looks the same."""
    output_file(spec).write_text("older")
    for part in ((0, 4), (4, 8), (8, 12)):
        if part != missing:
            write(spec, *part)
    with pytest.raises(UserError, match=words):
        merge_parts(spec, 12)
    assert output_file(spec).read_text() == "older"


def test_file_of_an_earlier_job_is_not_taken_for_the_result(spec: JobSpec) -> None:
    output_file(spec).write_text("older")
    with pytest.raises(UserError, match=r"\[0, 12\)"):
        merge_parts(spec, 12)


def test_worker_killed_before_its_report_leaves_the_result_to_the_next_one(spec: JobSpec) -> None:
    write(spec, 0, 12)
    merge_parts(spec, 12)
    before = outputs(spec)
    assert merge_parts(spec, 12) == [f"12 predictions: {output_file(spec)}"]
    assert outputs(spec) == before


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_part_without_a_readable_record_takes_no_column_from_the_others(spec: JobSpec, name: str) -> None:
    spec = dataclasses.replace(
        spec, training=dataclasses.replace(spec.training, output=str(output_file(spec).with_name(name)))
    )
    write_part(parts_folder(spec), 0, 4, [])
    write(spec, 4, 6)
    assert merge_parts(spec, 6) == [f"2 predictions: {output_file(spec)}"]
    if name.endswith(".csv"):
        assert output_file(spec).read_text() == "index,output\n4,5.0\n5,6.0\n"
    else:
        assert pq.read_table(output_file(spec)).to_pydict() == {"index": [4, 5], "output": [5.0, 6.0]}
