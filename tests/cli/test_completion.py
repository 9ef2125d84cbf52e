"""Shells complete commands, flags, values, and the names of jobs and nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.schema.flag_index import LEAVES
from elasticdl.jobs.spec import JobSpec
from tests.catalog.api_server import ApiServer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bash(elasticdl_process: Any) -> Any:
    """Completions for a line whose last word is being typed. Bash cuts words at equals signs."""

    def complete(line: str) -> list[str]:
        words = line.replace("=", " = ").split(" ")
        words = [word for word in words[:-1] if word] + words[-1:]
        env = {
            "_ELASTICDL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        out: str = elasticdl_process(env=env).out
        return out.splitlines()

    return complete


def test_commands_are_completed(bash: Any) -> None:
    assert bash("elasticdl tr") == ["plain,train"]
    assert {"plain,train", "plain,evaluate", "plain,predict"} <= set(bash("elasticdl "))


def test_flags_are_completed(bash: Any) -> None:
    assert bash("elasticdl train --num_w") == ["plain,--num_workers"]
    assert bash("elasticdl train --num-w") == ["plain,--num_workers"]
    assert bash("elasticdl predict --loss") == [""]
    everything = bash("elasticdl train --")
    assert {f"plain,--{name}" for name, leaf in LEAVES.items() if "train" in leaf.flag.kinds} <= set(
        everything
    )


@pytest.mark.parametrize("separator", [" ", "="])
def test_values_of_flags_are_completed(bash: Any, separator: str) -> None:
    assert bash(f"elasticdl train --distribution_strategy{separator}P") == ["plain,ParameterServerStrategy"]
    assert bash(f"elasticdl train --log_level{separator}d") == ["plain,DEBUG"]
    assert bash(f"elasticdl train --use_async{separator}") == ["plain,true", "plain,false"]
    assert bash(f"elasticdl train --training_data{separator}da") == ["file,da"]
    assert bash(f"elasticdl train --model_zoo{separator}mo") == ["dir,mo"]
    assert bash(f"elasticdl train --num_workers=2 --log_level{separator}E") == ["plain,ERROR"]


def test_other_shells_get_the_whole_word(elasticdl_process: Any) -> None:
    line = "elasticdl train --distribution_strategy=P"
    zsh = {"_ELASTICDL_COMPLETE": "zsh_complete", "COMP_WORDS": line, "COMP_CWORD": "2"}
    assert elasticdl_process(env=zsh).out.split() == [
        "plain",
        "--distribution_strategy=ParameterServerStrategy",
        "_",
    ]
    fish = {"_ELASTICDL_COMPLETE": "fish_complete", "COMP_WORDS": line, "COMP_CWORD": line.split()[-1]}
    assert "--distribution_strategy=ParameterServerStrategy" in elasticdl_process(env=fish).out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_shell(elasticdl: Any, shell: str) -> None:
    result = elasticdl("completion", shell)
    assert result.code == 0
    assert f"_ELASTICDL_COMPLETE={shell}_complete" in result.out


def test_the_script_for_bash_is_one(elasticdl: Any) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = elasticdl("completion", "bash").out + "\ncomplete -p elasticdl\n"
    done = subprocess.run([bash, "--norc"], input=script, capture_output=True, text=True, check=True)
    assert "_elasticdl_completion" in done.stdout


@pytest.fixture
def _jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two finished jobs, one of them with logs of two nodes."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for number, name in enumerate(("digits-1", "digits-2")):
        folder = JobStore().create(JobSpec.build(job_name=name, job_command="x"), now=float(number))
        folder.finish("succeeded", now=10.0)
        folder.release()
    for node in ("master", "worker-0"):
        JobStore().get("digits-2").log_path(node).write_text("")


@pytest.mark.usefixtures("_jobs")
def test_names_of_jobs_and_nodes(bash: Any) -> None:
    assert bash("elasticdl jobs status ") == ["plain,digits-2", "plain,digits-1"]
    assert bash("elasticdl jobs delete digits-1 ") == ["plain,digits-2"]
    assert bash("elasticdl jobs logs digits-2 ") == ["plain,master", "plain,worker-0"]
    assert bash("elasticdl jobs logs digits-2 w") == ["plain,worker-0"]
    assert bash("elasticdl jobs logs digits-1 ") == [""]
    assert bash("elasticdl jobs logs unknown ") == [""]


def test_names_of_jobs_in_a_namespace(api: ApiServer, bash: Any) -> None:
    api.submitted()
    assert bash("elasticdl jobs status --namespace=lab ") == ["plain,job"]
    assert bash("elasticdl jobs status ") == [""]
    api.hangs_up = lambda method, kind, name: True
    assert bash("elasticdl jobs status --namespace lab ") == [""]


@pytest.mark.usefixtures("_jobs")
def test_bash_itself_completes_commands_flags_jobs_and_nodes(elasticdl: Any, tmp_path: Path) -> None:
    """In a shell of its own, whose function for completion is called as readline calls it."""
    command = tmp_path / "elasticdl"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m elasticdl "$@"\n')
    command.chmod(0o755)
    lines = (
        "elasticdl job",
        "elasticdl jobs st",
        "elasticdl jobs status d",
        "elasticdl jobs logs digits-2 wor",
        "elasticdl train --distribution_strategy = P",
        "elasticdl jobs list --state = int",
    )
    script = [elasticdl("completion", "bash").out]
    for line in lines:
        script += [
            f"COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()",
            '_elasticdl_completion elasticdl; echo "${COMPREPLY[*]}"',
        ]
    done = subprocess.run(
        ["bash", "--norc", "-s"],
        input="\n".join(script),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines() == [
        "jobs",
        "status stop",
        "digits-2 digits-1",
        "worker-0",
        "ParameterServerStrategy",
        "interrupted",
    ], done.stderr
