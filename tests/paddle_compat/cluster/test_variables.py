"""Variables of the guide's Job that are missing or wrong are named, with the value that the guide gives."""

from __future__ import annotations

import pytest

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.variables import GUIDE, read_variables


def test_variables_of_the_guide_are_read() -> None:
    variables = read_variables(GUIDE)
    assert str(variables.job_folder) == "/home/jobpath/paddle-cluster-job"
    assert str(variables.data_folder(2)) == "/home/jobpath/paddle-cluster-job/2/data"
    assert (variables.port, variables.ports_num, variables.gradient_num) == (7164, 2, 3)
    # Two servers, two ports kept free, the trainer, the rendezvous.
    assert list(variables.ports) == [7164, 7165, 7166, 7167, 7168, 7169]


@pytest.mark.parametrize("name", sorted(GUIDE.keys() - {"JOB_NAMESPACE"}))
def test_missing_variable_is_named_with_the_value_of_the_guide(name: str) -> None:
    given = {key: value for key, value in GUIDE.items() if key != name}
    with pytest.raises(UserError) as caught:
        read_variables(given)
    assert f"{name} is not set (the guide: {GUIDE[name]})" in caught.value.message


def test_namespace_may_be_missing() -> None:
    assert (
        read_variables({key: value for key, value in GUIDE.items() if key != "JOB_NAMESPACE"}).namespace == ""
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONF_PADDLE_PORT", "http"),
        ("CONF_PADDLE_PORTS_NUM", "0"),
        ("CONF_PADDLE_PORTS_NUM_SPARSE", "-1"),
        ("CONF_PADDLE_GRADIENT_NUM", "3.0"),
    ],
)
def test_variable_that_is_no_number_is_named_with_the_value_of_the_guide(name: str, value: str) -> None:
    with pytest.raises(UserError) as caught:
        read_variables({**GUIDE, name: value})
    assert f"{name} must be a whole number" in caught.value.message
    assert f"not {value!r} (the guide: {GUIDE[name]})" in caught.value.message


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(UserError) as caught:
        read_variables({**GUIDE, "CONF_PADDLE_PORT": "x", "JOB_PATH": ""})
    assert "CONF_PADDLE_PORT" in caught.value.message
    assert "JOB_PATH" in caught.value.message


def test_ports_beyond_the_last_one_are_refused() -> None:
    with pytest.raises(UserError, match="CONF_PADDLE_PORT=65533 leaves no room for 6 ports"):
        read_variables({**GUIDE, "CONF_PADDLE_PORT": "65533"})
