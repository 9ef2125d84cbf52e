"""Shells complete commands, flags and values."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

from elasticdl.jobs.schema.flag_index import LEAVES


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


def test_commands(bash: Any) -> None:
    assert bash("elasticdl tr") == ["plain,train"]
    assert {"plain,train", "plain,evaluate", "plain,predict"} <= set(bash("elasticdl "))


def test_flags(bash: Any) -> None:
    assert bash("elasticdl train --num_w") == ["plain,--num_workers"]
    assert bash("elasticdl train --num-w") == ["plain,--num_workers"]
    assert bash("elasticdl predict --loss") == [""]
    everything = bash("elasticdl train --")
    assert {f"plain,--{name}" for name, leaf in LEAVES.items() if "train" in leaf.flag.kinds} <= set(
        everything
    )


@pytest.mark.parametrize("separator", [" ", "="])
def test_values(bash: Any, separator: str) -> None:
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
def test_scripts(elasticdl: Any, shell: str) -> None:
    result = elasticdl("completion", shell)
    assert result.code == 0
    assert f"_ELASTICDL_COMPLETE={shell}_complete" in result.out


def test_the_script_for_bash_is_one(elasticdl: Any) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = elasticdl("completion", "bash").out + "\ncomplete -p elasticdl\n"
    done = subprocess.run([bash, "--norc"], input=script, capture_output=True, text=True, check=True)
    assert "_elasticdl_completion" in done.stdout
