"""`import elasticdl` offers the names of the Python API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import elasticdl

ROOT = Path(__file__).parents[2]


def test_every_name_is_there() -> None:
    for name in elasticdl.__all__:
        assert getattr(elasticdl, name) is not None
        assert name in dir(elasticdl)


def test_public_names_are_the_documented_objects() -> None:
    assert elasticdl.JobSpec.build(job_command="x").program == "command"
    assert elasticdl.Mode.TRAINING == "training"  # type: ignore[comparison-overlap]
    assert issubclass(elasticdl.UserError, Exception)
    assert elasticdl.metrics.__name__ == "elasticdl.worker.scoring.metrics"
    assert callable(elasticdl.run)


def test_unknown_public_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'elasticdl' has no attribute 'ruin'"):
        _ = elasticdl.ruin


@pytest.mark.parametrize("folder", [".", "distributions/elasticai_api", "distributions/elasticdl_client"])
def test_each_distribution_has_version_of_package(folder: str) -> None:
    text = (ROOT / folder / "pyproject.toml").read_text()
    found = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
    assert found
    assert elasticdl.__version__ == found[1]
    for required in re.findall(r'"elasticdl\[.*\]==(.*)"', text):
        assert elasticdl.__version__ == required
