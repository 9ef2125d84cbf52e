"""`--hosts`: its grammar, and what it excludes."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml


def job(**flags: Any) -> JobSpec:
    return JobSpec.build(**{"job_name": "j", "job_command": "python train.py", **flags})


@pytest.mark.parametrize("given", ["gpu1, bob@gpu2", ["gpu1", "bob@gpu2"], ("gpu1,bob@gpu2",)])
def test_hosts_are_read_from_every_form(given: object) -> None:
    spec = job(hosts=given)
    assert spec.nodes.hosts == ("gpu1", "bob@gpu2")
    assert from_yaml(to_yaml(spec)).nodes.hosts == spec.nodes.hosts


@pytest.mark.parametrize("given", ["-oProxyCommand=x", "a b", "a;-b", "a,,b", "$(id)", 7])
def test_what_is_no_host_is_rejected(given: object) -> None:
    with pytest.raises(UserError, match="hosts"):
        job(hosts=given)


def test_host_given_twice_is_rejected() -> None:
    with pytest.raises(UserError, match="'a' is given twice"):
        job(hosts="a,b,a")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"image_name": "i"}, "--hosts and --image_name exclude each other"),
        ({"checkpoint_dir": "s3://bucket/c"}, "a folder that all of them share"),
    ],
)
def test_what_hosts_cannot_do_is_rejected(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        job(hosts="a", **flags)


@pytest.mark.parametrize("flag", ["hosts_python", "ssh_config", "master_host"])
def test_flags_of_hosts_need_hosts(flag: str) -> None:
    with pytest.raises(UserError, match=f"--{flag} is for jobs on several machines"):
        job(**{flag: "x"})
