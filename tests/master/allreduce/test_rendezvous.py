"""The members of rounds, and when they change."""

from __future__ import annotations

from elasticdl.master.allreduce.rendezvous import PATIENCE, RETURN_SECONDS, Rendezvous


def _meeting(capacity: int = 3) -> Rendezvous:
    return Rendezvous(capacity=capacity)


def _come(meeting: Rendezvous, *workers: str, since: int = 0, known_round: int = 0) -> None:
    for worker in workers:
        meeting.ready(
            worker=worker,
            incarnation=f"i-{worker}",
            address=f"{worker}:1",
            since=since,
            known_round=known_round,
        )


def test_every_newcomer_makes_a_round() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0")
    assert (meeting.round.number, meeting.round.workers) == (1, ("worker-0",))
    _come(meeting, "worker-1")
    assert (meeting.round.number, meeting.round.workers) == (2, ("worker-0", "worker-1"))


def test_the_same_worker_again_changes_nothing() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1")
    _come(meeting, "worker-0")
    assert meeting.round.number == 2


def test_dead_member_is_removed_by_a_new_round() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1", "worker-2")
    meeting.keep(["worker-0", "worker-2"])
    assert (meeting.round.number, meeting.round.workers) == (4, ("worker-0", "worker-2"))
    meeting.keep(["worker-0", "worker-2"])
    assert meeting.round.number == 4


def test_death_of_standby_worker_starts_no_round() -> None:
    meeting = _meeting(capacity=2)
    _come(meeting, "worker-0", "worker-1", "worker-2")
    assert meeting.round.workers == ("worker-0", "worker-1")
    meeting.keep(["worker-0", "worker-1"])
    assert meeting.round.number == 2


def test_standby_worker_replaces_dead_member() -> None:
    meeting = _meeting(capacity=2)
    _come(meeting, "worker-0", "worker-1", "worker-2")
    meeting.keep(["worker-1", "worker-2"])
    assert (meeting.round.number, meeting.round.workers) == (3, ("worker-1", "worker-2"))


def test_leaving_worker_is_not_in_next_round() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1")
    meeting.leave("worker-0", "another process of that name")
    assert meeting.round.number == 2
    meeting.leave("worker-0", "i-worker-0")
    assert (meeting.round.number, meeting.round.workers) == (3, ("worker-1",))


def test_another_process_of_the_same_name_is_another_member() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0")
    meeting.ready(worker="worker-0", incarnation="new", address="worker-0:2", since=0, known_round=0)
    assert meeting.round.number == 2
    assert meeting.round.members[0].address == "worker-0:2"


def test_the_oldest_are_first_also_for_a_master_that_was_restarted() -> None:
    """It has forgotten everything; the workers tell since when they have the state, and which rounds there were."""
    meeting = _meeting()
    _come(meeting, "worker-5", known_round=7)
    _come(meeting, "worker-3", since=4, known_round=7)
    _come(meeting, "worker-0", since=2, known_round=7)
    assert meeting.round.workers == ("worker-0", "worker-3", "worker-5")
    assert meeting.round.number > 7


def test_synced_newcomer_precedes_unsynced_one() -> None:
    meeting = _meeting(capacity=2)
    _come(meeting, "worker-0", "worker-1", "worker-2")
    meeting.synced("worker-0", 1)
    meeting.synced("worker-1", 2)
    meeting.keep(["worker-1", "worker-2"])
    _come(meeting, "worker-3")
    assert meeting.round.workers == ("worker-1", "worker-2")


def test_a_broken_round_waits_for_the_news_of_a_death() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1")
    meeting.broken("worker-0", 2, now=100.0)
    meeting.tick(100.0 + PATIENCE / 2)
    assert meeting.round.number == 2
    meeting.keep(["worker-0"])
    assert (meeting.round.number, meeting.round.workers) == (3, ("worker-0",))
    meeting.tick(200.0)
    assert meeting.round.number == 3


def test_a_broken_round_without_a_death_is_met_again_by_the_same() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1")
    meeting.broken("worker-1", 2, now=100.0)
    meeting.tick(100.0 + PATIENCE)
    assert (meeting.round.number, meeting.round.workers) == (3, ("worker-0", "worker-1"))


def test_report_about_earlier_round_is_ignored() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1")
    meeting.broken("worker-1", 1, now=100.0)
    meeting.tick(200.0)
    assert meeting.round.number == 2


def test_member_that_others_wait_for_is_reported_as_hanging() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1", "worker-2")
    meeting.waiting("worker-0", 3, 5.0, now=100.0)
    meeting.waiting("worker-2", 3, 5.0, now=100.0)
    assert meeting.hanging(limit=60.0, now=100.0) == []
    meeting.waiting("worker-0", 3, 61.0, now=156.0)
    meeting.waiting("worker-2", 3, 61.0, now=156.0)
    assert meeting.hanging(limit=60.0, now=157.0) == ["worker-1"]


def test_no_member_hangs_where_all_wait() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1")
    meeting.waiting("worker-0", 2, 70.0, now=100.0)
    meeting.waiting("worker-1", 2, 70.0, now=100.0)
    assert meeting.hanging(limit=60.0, now=100.0) == []


def test_when_the_state_is_lost_all_come_again() -> None:
    meeting = _meeting()
    _come(meeting, "worker-0", "worker-1")
    meeting.clear()
    assert (meeting.round.number, meeting.round.workers) == (3, ())
    _come(meeting, "worker-1")
    assert (meeting.round.number, meeting.round.workers) == (4, ("worker-1",))


def test_restarted_master_waits_for_all_members_of_last_round() -> None:
    meeting = _meeting()
    meeting.resume(["worker-0", "worker-1"], now=100.0)
    _come(meeting, "worker-2", known_round=5)
    _come(meeting, "worker-1", since=2, known_round=5)
    # Nothing new for the members of round 5.
    assert meeting.round.number == 5
    _come(meeting, "worker-0", since=1, known_round=5)
    assert (meeting.round.number, meeting.round.workers) == (6, ("worker-0", "worker-1", "worker-2"))


def test_restarted_master_waits_briefly_for_missing_members() -> None:
    meeting = _meeting()
    meeting.resume(["worker-0", "worker-1"], now=100.0)
    _come(meeting, "worker-1", since=2, known_round=5)
    meeting.tick(100.0 + RETURN_SECONDS)
    assert (meeting.round.number, meeting.round.workers) == (6, ("worker-1",))


def test_restarted_master_does_not_wait_for_dead_members() -> None:
    meeting = _meeting()
    meeting.resume(["worker-0", "worker-1"], now=100.0)
    _come(meeting, "worker-1", since=2, known_round=5)
    meeting.keep(["worker-1"])
    assert (meeting.round.number, meeting.round.workers) == (6, ("worker-1",))


def test_after_a_restart_of_the_master_newcomers_do_not_meet_alone() -> None:
    """They would restart the training, while another worker has its state."""
    meeting = _meeting()
    meeting.resume(["worker-0"], now=100.0)
    _come(meeting, "worker-1")
    meeting.tick(200.0)
    assert meeting.incomplete
    assert list(meeting.round.workers) == []
    _come(meeting, "worker-0", since=1, known_round=4)
    assert (meeting.round.number, meeting.round.workers) == (5, ("worker-0", "worker-1"))
