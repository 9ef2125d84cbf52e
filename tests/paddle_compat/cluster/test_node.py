"""A node: what it checks before it starts anything, whom it waits for, and what it does when a member is lost."""

from __future__ import annotations

import dataclasses
import io
import logging
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from elasticdl.errors import ExitCode, UserError
from elasticdl.paddle_compat.cluster import node as nodes
from elasticdl.paddle_compat.cluster.arguments import TRAIN, parse
from elasticdl.paddle_compat.cluster.data_job import DataJob
from elasticdl.paddle_compat.cluster.membership import (
    Member,
    MembershipUnavailable,
    Phase,
    find_quorum,
    write_members,
)
from elasticdl.paddle_compat.cluster.node import Intervals, MemberLost, Node, check_interface, claim_output
from elasticdl.paddle_compat.cluster.passes import newest_pass
from elasticdl.paddle_compat.cluster.sources import Sizes
from elasticdl.paddle_compat.cluster.variables import GUIDE, Variables, read_variables


class Members:
    """Lists of members, one for each look; the last one stays."""

    own_uid = "uid-a"

    def __init__(self, *lists: Sequence[Member] | Exception) -> None:
        self._lists = list(lists)

    def members(self) -> Sequence[Member]:
        found = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        if isinstance(found, Exception):
            raise found
        return found


def member(name: str, address: str, phase: Phase = Phase.RUNNING) -> Member:
    return Member(uid=f"uid-{name}", name=name, address=address, phase=phase)


A, B = member("a", "127.0.0.1"), member("b", "127.0.0.2")


def free_ports(count: int) -> int:
    """The first of ports that are free one behind the other."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = int(probe.getsockname()[1])
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            continue
        return first


@pytest.fixture
def variables(tmp_path: Path) -> Variables:
    """Of a job of two nodes whose data is ready."""
    DataJob(out_dir=tmp_path / "job", split_count=2, sizes=Sizes(reviews=60, ratings=60)).run()
    values = {"JOB_NAME": "job", "JOB_PATH": str(tmp_path), "CONF_PADDLE_GRADIENT_NUM": "2"}
    return read_variables(
        {**GUIDE, **values, "CONF_PADDLE_PORT": str(free_ports(6)), "CONF_PADDLE_NIC": "lo"}
    )


def make(
    variables: Variables, members: Members, *words: str, sleep: Callable[[float], None] | None = None
) -> Node:
    return Node(
        variables=variables,
        arguments=parse(words, TRAIN, command="start_paddle.py"),
        membership=members,
        intervals=Intervals(ports_seconds=0.0),
        sleep=sleep or (lambda seconds: None),
    )


def refusal(node: Node) -> str:
    with pytest.raises(UserError) as caught:
        node.run()
    return f"{caught.value.message} {caught.value.hint}"


def environment(variables: Variables, folder: Path) -> dict[str, str]:
    """Of node 0, whose membership is a file."""
    write_members(folder / "members.json", [A, B])
    return {
        **GUIDE,
        "JOB_NAME": variables.job_name,
        "JOB_PATH": str(variables.job_path),
        "CONF_PADDLE_GRADIENT_NUM": "2",
        "CONF_PADDLE_PORT": str(variables.port),
        nodes.MEMBERS_FILE: str(folder / "members.json"),
        nodes.OWN_UID: A.uid,
    }


def finish_pass(variables: Variables, number: int) -> None:
    folder = variables.output / f"pass-{number:05d}"
    folder.mkdir(parents=True)
    (folder / "done").touch()


# -- what it finds ---------------------------------------------------------------------------------------------


def test_missing_job_folder_is_named(variables: Variables) -> None:
    variables.job_folder.rename(variables.job_folder.with_name("other"))
    said = refusal(make(variables, Members([A, B])))
    assert f"There is no folder {variables.job_folder} (JOB_PATH/JOB_NAME)" in said
    assert "Run the data job first" in said


def test_missing_configuration_folder_is_named_with_those_that_exist(variables: Variables) -> None:
    variables.config_folder.rename(variables.job_folder / "mine")
    said = refusal(make(variables, Members([A, B])))
    assert f"There is no folder {variables.config_folder} (TRAIN_CONFIG_DIR)" in said
    assert "mine, output, quick_start" in said


def test_missing_data_folder_is_named_with_the_number_to_split_for(variables: Variables) -> None:
    variables.data_folder(1).rename(variables.job_folder / "away")
    said = refusal(make(variables, Members([A, B])))
    assert f"There is no data folder {variables.data_folder(1)} for node 1 of 2" in said
    assert "SPLIT_COUNT=2" in said


def test_data_for_more_nodes_is_refused(variables: Variables) -> None:
    fewer = dataclasses.replace(variables, gradient_num=1)
    said = refusal(make(fewer, Members([A])))
    assert f"No node would train {variables.data_folder(1)}: CONF_PADDLE_GRADIENT_NUM is 1" in said
    assert "SPLIT_COUNT" in said


def test_missing_configuration_is_named_with_those_that_exist(variables: Variables) -> None:
    said = refusal(make(variables, Members([A, B]), "--config=./trainer_config.lr.py"))
    assert "There is no configuration ./trainer_config.lr.py" in said
    assert "trainer_config.py" in said


def test_port_in_use_is_named(variables: Variables) -> None:
    with socket.socket() as taken:
        taken.bind((A.address, variables.port + 1))
        taken.listen()
        said = refusal(make(variables, Members([A, B])))
    assert f"Port {variables.port + 1} of {A.address} is in use" in said
    assert "CONF_PADDLE_PORT" in said


def test_file_that_cannot_be_copied_is_named(variables: Variables, tmp_path: Path) -> None:
    (variables.config_folder / "words.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=r"recommendation/words.txt cannot be copied to .*No such file"):
        make(variables, Members([A, B]))._copy_inputs(tmp_path / "work", 0)


def test_missing_interface_is_a_warning_with_those_that_exist(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_interface("eth77", "10.0.0.1")
    assert "CONF_PADDLE_NIC=eth77: there is no such network interface" in caplog.text
    assert "lo" in caplog.text
    assert "using 10.0.0.1" in caplog.text


# -- whom it waits for -----------------------------------------------------------------------------------------


def test_wait_ends_when_all_members_run(variables: Variables) -> None:
    pending = member("b", "", Phase.PENDING)
    slept: list[float] = []
    members = Members([A, pending], MembershipUnavailable("503"), [A, B])
    quorum = make(variables, members, sleep=slept.append)._wait_for_members()
    assert [each.name for each in quorum.members] == ["a", "b"]
    assert len(slept) == 2


def test_wait_ends_well_when_others_complete_the_passes(variables: Variables) -> None:
    def others_finish(seconds: float) -> None:
        finish_pass(variables, 4)

    node = make(variables, Members([A]), "--num_passes=5", sleep=others_finish)
    with pytest.raises(SystemExit) as ended:
        node.run()
    assert ended.value.code == 0


def test_complete_job_ends_at_once(variables: Variables) -> None:
    finish_pass(variables, 4)
    assert make(variables, Members([]), "--num_passes=5").run() == 0


def test_pass_without_its_mark_does_not_count(variables: Variables) -> None:
    finish_pass(variables, 1)
    (variables.output / "pass-00002").mkdir()
    (variables.output / ".pass-00003.part").mkdir()
    assert newest_pass(variables.output) == 1


def test_member_lost_at_the_barrier_ends_the_attempt(variables: Variables) -> None:
    quorum = find_quorum([A, B], wanted=2)
    assert quorum is not None
    (variables.output / "node_0").mkdir(parents=True)
    node = make(variables, Members([A, B], [A]))
    with pytest.raises(MemberLost, match=r"b \(127.0.0.2\) is gone"):
        node._meet(quorum, 0, "started")


def test_mark_of_an_older_attempt_does_not_open_the_barrier(variables: Variables) -> None:
    quorum = find_quorum([A, B], wanted=2)
    assert quorum is not None
    for number, attempt in enumerate(("", "older")):
        (variables.output / f"node_{number}").mkdir(parents=True)
        (variables.output / f"node_{number}" / "started").write_text(attempt)
    looks: list[float] = []

    def other_arrives(seconds: float) -> None:
        looks.append(seconds)
        (variables.output / "node_1" / "started").write_text(quorum.attempt)

    make(variables, Members([A, B]), sleep=other_arrives)._meet(quorum, 0, "started")
    assert len(looks) == 1


# -- the process -----------------------------------------------------------------------------------------------


def test_mistake_ends_the_process_with_the_code_of_bad_input(caplog: pytest.LogCaptureFixture) -> None:
    assert nodes.main(["--num_pases=3"], GUIDE) == ExitCode.BAD_INPUT
    assert "--num_pases" in caplog.text
    assert "num_passes" in caplog.text
    assert nodes.main([], {}) == ExitCode.BAD_INPUT
    assert "JOB_NAME is not set (the guide: paddle-cluster-job)" in caplog.text


def test_volume_that_is_not_writable_is_named_with_the_user(
    variables: Variables, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    variables.output.rmdir()
    # The kernel makes no folders there, for no user.
    variables.output.symlink_to("/sys/kernel")
    assert (
        nodes.main(["--config=./trainer_config.py"], environment(variables, tmp_path)) == ExitCode.BAD_INPUT
    )
    assert f"{variables.output}/" in caplog.text
    assert f"This node (user {os.getuid()}) must be able to read and write" in caplog.text


def test_file_in_the_place_of_a_folder_is_named(
    variables: Variables, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (variables.output / "node_0").write_text("")
    assert nodes.main(["--config=./trainer_config.py"], environment(variables, tmp_path)) == 2
    assert f"{variables.output}/node_0: File exists. Move it away" in caplog.text


@pytest.mark.parametrize(("newest", "is_given"), [(0, True), (1, False)])
def test_flags_of_the_start_are_for_the_first_attempt(
    variables: Variables, newest: int, is_given: bool
) -> None:
    finish_pass(variables, newest)
    quorum = find_quorum([A, B], wanted=2)
    assert quorum is not None
    node = make(variables, Members([A, B]), "--start_pass=1", "--init_model_path=model")
    words = node._train_words(quorum, 0)
    assert ("--start_pass=1" in words) is is_given
    assert ("--init_model_path=model" in words) is is_given


class Servers:
    """Processes that have ended, or never do."""

    def __init__(self, code: int | None) -> None:
        self._code = code

    def poll(self) -> int | None:
        return self._code


@pytest.mark.parametrize(("code", "expected"), [(-9, 137), (137, 137), (1, 1)])
def test_failed_servers_end_the_node_soon_whatever_the_trainer_does(
    variables: Variables, code: int, expected: int
) -> None:
    quorum = find_quorum([A, B], wanted=2)
    assert quorum is not None
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    node = make(variables, Members([A, B]), sleep=sleep)
    node.clock = lambda: passed[0]
    found = node._watch(quorum, Servers(code), Servers(None), variables.output)  # type: ignore[arg-type]
    assert found == expected
    intervals = node.intervals
    waited = intervals.crash_seconds + (intervals.collateral_seconds if expected == 1 else 0)
    assert passed[0] <= waited + 2 * intervals.members_seconds


def test_members_of_a_file_are_read(variables: Variables, tmp_path: Path) -> None:
    file = tmp_path / "members.json"
    write_members(file, [A, B])
    given = {nodes.MEMBERS_FILE: str(file), nodes.OWN_UID: "uid-a"}
    assert list(nodes._find_membership(variables, given).members()) == [A, B]


def test_log_on_a_full_volume_does_not_stop_the_trainer(
    caplog: pytest.LogCaptureFixture, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with open("/dev/full", "ab") as sink:
        nodes._copy_output(io.BytesIO(b"one\ntwo\n"), sink)
        # What is left in the buffer cannot be written either.
        sink.raw.close()
    assert "Writing the log stopped: No space left on device" in caplog.text
    assert capfdbinary.readouterr().out == b"one\ntwo\n"


def test_passes_of_another_configuration_are_refused(variables: Variables) -> None:
    """Their number is no reason to succeed."""
    done = variables.output / "pass-00000"
    claim_output(dataclasses.replace(variables, config_dir="quick_start"), "./trainer_config.py")
    claim_output(variables, "./trainer_config.py")
    done.mkdir()
    (done / "done").touch()
    assert make(variables, Members([A]), "--num_passes=1").run() == 0
    other = dataclasses.replace(variables, config_dir="quick_start")
    message = refusal(make(other, Members([A]), "--num_passes=1"))
    assert "has 1 passes of the configuration recommendation/trainer_config.py" in message
    assert "this job's is quick_start/trainer_config.py" in message
    # Of an earlier version, which left no note.
    (variables.output / ".configuration").unlink()
    assert make(other, Members([A]), "--num_passes=1").run() == 0
