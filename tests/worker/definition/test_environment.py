"""What frameworks read from the environment is set before they are imported, and never over the user's head."""

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.worker.environment import prepare_environment, select_mkl_kernels, wait_asleep


def test_greetings_are_quieted() -> None:
    environment: dict[str, str] = {}
    prepare_environment(environment)
    assert environment["TF_CPP_MIN_LOG_LEVEL"] == "2"


def test_threads_are_handed_on() -> None:
    environment = {"ELASTICDL_THREADS": "3"}
    prepare_environment(environment)
    assert environment["TF_NUM_INTRAOP_THREADS"] == environment["TF_NUM_INTEROP_THREADS"] == "3"
    assert environment["OMP_NUM_THREADS"] == "3"


def test_variables_set_by_user_are_kept() -> None:
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


def _processors(folder: Path, vendor: str, flags: str) -> Path:
    """As Linux describes two of them in /proc/cpuinfo."""
    one = f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\npower management:\n\n"
    path = folder / "cpuinfo"
    path.write_text(one + one.replace("processor\t: 0", "processor\t: 1"))
    return path


@pytest.mark.parametrize(
    ("vendor", "flags", "selected"),
    [
        ("AuthenticAMD", "sse2 fma avx avx2 avx512f", {"MKL_DEBUG_CPU_TYPE": "5"}),
        ("HygonGenuine", "sse2 fma avx avx2", {"MKL_DEBUG_CPU_TYPE": "5"}),
        ("AuthenticAMD", "sse2 avx", {}),
        ("GenuineIntel", "sse2 fma avx avx2", {}),
    ],
)
def test_old_mkl_gets_avx2_kernels_on_amd_with_avx2(
    tmp_path: Path, vendor: str, flags: str, selected: dict[str, str]
) -> None:
    environment: dict[str, str] = {}
    select_mkl_kernels(environment, processors=_processors(tmp_path, vendor, flags))
    assert environment == selected


@pytest.mark.parametrize("chosen", [{"MKL_DEBUG_CPU_TYPE": "4"}, {"MKL_CBWR": "COMPATIBLE"}])
def test_kernels_that_the_user_selected_stay(tmp_path: Path, chosen: dict[str, str]) -> None:
    environment = dict(chosen)
    select_mkl_kernels(environment, processors=_processors(tmp_path, "AuthenticAMD", "fma avx2"))
    assert environment == chosen


def test_system_without_cpuinfo_selects_no_kernels(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    select_mkl_kernels(environment, processors=tmp_path / "cpuinfo")
    assert environment == {}
