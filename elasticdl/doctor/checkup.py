"""All checks of `elasticdl doctor`, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from elasticdl.doctor import machine_checks, python_checks
from elasticdl.doctor.finding import Finding, Level
from elasticdl.jobs.job_store import default_home

Check = Callable[[], Finding | list[Finding]]


def all_checks(
    *, namespace: str = "", hosts: Sequence[str] = (), hosts_python: str = "", ssh_config: str = ""
) -> list[tuple[str, Check]]:
    """Returns each check with what it looks at. `namespace`: of the cluster; `hosts`: as jobs name them."""

    def cluster() -> list[Finding]:
        from elasticdl.doctor.cluster_checks import check_cluster

        return check_cluster(namespace)

    def all_hosts() -> list[Finding]:
        from elasticdl.doctor.host_checks import check_hosts

        return check_hosts(hosts, python=hosts_python, config=ssh_config)

    return [
        ("Python", python_checks.check_python),
        ("system", machine_checks.check_system),
        ("compiled kernels", python_checks.check_kernels),
        ("C++ compiler", python_checks.check_compiler),
        ("frameworks", python_checks.check_frameworks),
        ("memory", machine_checks.check_memory),
        ("shared memory", machine_checks.check_shared_memory),
        ("home of jobs", lambda: machine_checks.check_home(default_home())),
        ("ports", machine_checks.check_ports),
        ("limits", machine_checks.check_limits),
        ("cluster", cluster),
        *([("hosts", all_hosts)] if hosts else []),
    ]


def run_checks(checks: Sequence[tuple[str, Check]], *, begins: Callable[[str], None]) -> Iterator[Finding]:
    """Yields findings as they come. `begins`: called with what is looked at next.

    A check that fails in a way of its own is an error, and does not keep the others from being made.
    """
    for subject, check in checks:
        begins(subject)
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - it is shown, and the next check is made
            text = f"The check itself has failed: {type(error).__name__}: {error}"
            found = Finding(subject=subject, level=Level.ERROR, text=text, fix="Report it with this line.")
        yield from found if isinstance(found, list) else [found]
