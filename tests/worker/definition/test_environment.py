"""What frameworks read from the environment is set before they are imported, and never over the user's head."""

import pytest

from elasticdl.errors import UserError
from elasticdl.worker.environment import prepare_environment, wait_asleep


def test_greetings_are_quieted() -> None:
    environment: dict[str, str] = {}
    prepare_environment(environment)
    assert environment == {"TF_CPP_MIN_LOG_LEVEL": "2"}


def test_threads_are_handed_on() -> None:
    environment = {"ELASTICDL_THREADS": "3"}
    prepare_environment(environment)
    assert environment["TF_NUM_INTRAOP_THREADS"] == environment["TF_NUM_INTEROP_THREADS"] == "3"
    assert environment["OMP_NUM_THREADS"] == "3"


def test_what_the_user_set_stays() -> None:
    environment = {"ELASTICDL_THREADS": "3", "TF_CPP_MIN_LOG_LEVEL": "0", "OMP_NUM_THREADS": "1"}
    prepare_environment(environment)
    assert environment["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert environment["OMP_NUM_THREADS"] == "1"


def test_no_number_of_threads() -> None:
    with pytest.raises(UserError, match="ELASTICDL_THREADS=many"):
        prepare_environment({"ELASTICDL_THREADS": "many"})


def test_threads_that_wait_sleep_unless_the_user_wants_them_awake() -> None:
    environment: dict[str, str] = {}
    wait_asleep(environment)
    assert environment == {"OMP_WAIT_POLICY": "PASSIVE"}
    for chosen in ({"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "1000"}):
        environment = dict(chosen)
        wait_asleep(environment)
        assert environment == chosen
