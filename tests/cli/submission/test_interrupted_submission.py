"""Ctrl-C while the objects of a job are made: half a job is no job, and the command does not say that it goes on."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.catalog.api_server import RECORD, RUNNING, ApiServer

TRAIN = ("train", "--job_name=job", "--image_name=i", "--job_command=x")


def test_before_all_of_it_is_there(elasticdl: Any, api: ApiServer) -> None:
    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "secrets"):
            os.kill(os.getpid(), signal.SIGINT)

    api.meanwhile = meanwhile
    result = elasticdl(*TRAIN)
    assert result.code == 130
    assert "Job job has not been submitted." in result.out
    assert "goes on" not in result.out
    assert ("configmaps", RECORD) not in api.objects


def test_while_it_is_looked_at(elasticdl: Any, api: ApiServer) -> None:
    looks = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind) == ("POST", "pods"):
            api.master(**RUNNING)
        if (method, kind) == ("GET", "pods"):
            looks.append(name)
            if len(looks) == 3:
                os.kill(os.getpid(), signal.SIGINT)

    api.meanwhile = meanwhile
    result = elasticdl(*TRAIN)
    assert result.code == 130
    assert "Job job goes on; `elasticdl jobs stop job --namespace=lab` would stop it." in result.out
    assert ("configmaps", RECORD) in api.objects
