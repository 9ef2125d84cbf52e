"""A journal whose lock another master has: taken over only when that master is known to be no more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elasticdl.master.journal import Holder, Journal, JournalTaken, holder_of
from elasticdl.master.kubernetes.journal_takeover import Handover, in_words

OLD = Holder(pod="elasticdl-j-master", uid="old", since=0.0, beat=7)


def waits(handover: Handover, holder: Holder | None, *, current: str, until: int) -> list[int]:
    """The seconds at which it may be taken."""
    return [now for now in range(until) if handover.may_take(holder, current=current, now=float(now))]


def test_not_before_the_holder_has_been_still_for_long() -> None:
    assert waits(Handover("new"), OLD, current="new", until=65) == [60, 61, 62, 63, 64]


def test_not_while_the_holder_shows_signs_of_life() -> None:
    handover = Handover("new")
    for now in range(1000):
        alive = Holder(pod=OLD.pod, uid=OLD.uid, since=0.0, beat=now // 5)
        assert not handover.may_take(alive, current="new", now=float(now))


@pytest.mark.parametrize("current", ["old", "another", ""])
def test_not_by_a_pod_that_is_not_the_master_of_the_job_now(current: str) -> None:
    assert waits(Handover("new"), OLD, current=current, until=1000) == []


def test_soon_if_it_was_a_container_of_the_same_pod() -> None:
    assert waits(Handover("old"), OLD, current="old", until=16) == [15]


@pytest.mark.parametrize(
    ("uid", "holder"), [("new", None), ("", OLD), ("", Holder(pod="p", uid="", since=0.0))]
)
def test_journal_without_known_holder_is_never_taken(uid: str, holder: Holder | None) -> None:
    assert waits(Handover(uid), holder, current=uid, until=1000) == []


def test_message_names_lock_holder_and_time() -> None:
    words = in_words(OLD, Path("/journals/j"))
    assert "/journals/j" in words
    assert "elasticdl-j-master (uid old), since 1970-01-01 00:00:00 UTC" in words


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def holder(uid: str) -> Holder:
    return Holder(pod="elasticdl-j-master", uid=uid, since=time.time())


def test_lock_has_identity_and_heartbeat_of_holder(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    with Journal(tmp_path, holder=holder("a")) as journal:
        first = holder_of(tmp_path)
        journal.beat()
        then = holder_of(tmp_path)
    assert first is not None
    assert then is not None
    assert (first.uid, then.uid) == ("a", "a")
    assert then.beat > first.beat


def test_forced_takeover_reads_journal_and_takes_lock(tmp_path: Path) -> None:
    lost = Journal(tmp_path, holder=holder("lost"))
    lost.append({"n": 1})
    with pytest.raises(JournalTaken):
        Journal(tmp_path, holder=holder("next"))
    with Journal(tmp_path, holder=holder("next"), by_force=True) as journal:
        assert [*journal.read()[1]] == [{"n": 1}]
        found = holder_of(tmp_path)
        assert found is not None
        assert found.uid == "next"
        # The lock is its own from now on.
        with pytest.raises(JournalTaken):
            Journal(tmp_path, holder=holder("third"))


def test_a_holder_that_was_only_out_of_reach_writes_no_more(tmp_path: Path) -> None:
    clock = Clock()
    lost = Journal(tmp_path, holder=holder("lost"), clock=clock)
    lost.append({"n": 1})
    with Journal(tmp_path, holder=holder("next"), by_force=True) as journal:
        journal.compact({"so": "far"})
        journal.append({"n": 2})
        clock.now += 60.0
        with pytest.raises(JournalTaken):
            lost.append({"n": 3})
        with pytest.raises(JournalTaken):
            lost.beat()
    with Journal(tmp_path) as journal:
        snapshot, records = journal.read()
        assert (snapshot, [*records]) == ({"so": "far"}, [{"n": 2}])


def test_compaction_by_former_holder_is_fenced(tmp_path: Path) -> None:
    lost = Journal(tmp_path, holder=holder("lost"))
    with Journal(tmp_path, holder=holder("next"), by_force=True) as journal:
        journal.compact({"of": "next"})
        with pytest.raises(JournalTaken):
            lost.compact({"of": "lost"})
    with Journal(tmp_path) as journal:
        assert journal.read()[0] == {"of": "next"}
