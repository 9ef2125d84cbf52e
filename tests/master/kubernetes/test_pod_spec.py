"""The master's pod reads the job from its record, which a newer command may have written."""

from __future__ import annotations

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.job_record import SPEC_KEY
from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.master.kubernetes.pod_master import _spec

SPEC = JobSpec.build(
    model_zoo="zoo", model_def="folder.module.function", training_data="data", image_name="image"
)


def test_spec_in_job_record_reads_back() -> None:
    assert _spec({"data": {SPEC_KEY: to_yaml(SPEC)}}) == SPEC


def test_flag_unknown_to_image_is_refused() -> None:
    newer = to_yaml(SPEC).replace("  num_ps:", "  num_of_the_future: 1\n  num_ps:")
    with pytest.raises(UserError, match=r"image cannot read the job.*num_of_the_future") as error:
        _spec({"data": {SPEC_KEY: newer}})
    assert "zoo build" in str(error.value.hint)
