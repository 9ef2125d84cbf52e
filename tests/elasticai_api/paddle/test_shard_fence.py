"""Which lease may add its shard: the newest one on its samples, and only while it is registered."""

from __future__ import annotations

from pathlib import Path

from elasticai_api.paddle.shard_fence import MOST_OF_OTHER_JOBS, Lease, ShardFence, Span


def fence(folder: Path, ledger_id: str = "job", writer: str = "a") -> ShardFence:
    return ShardFence(folder, ledger_id, writer=writer)


def lease(number: int, start: int = 0, end: int = 12, *, epoch: int = 1, ledger_id: str = "job") -> Lease:
    return Lease(number, Span(ledger_id, "d", epoch, start, end))


def test_newer_lease_fences_the_older_one(tmp_path: Path) -> None:
    mine, theirs = fence(tmp_path), fence(tmp_path, writer="b")
    assert mine.register(lease(1))
    assert theirs.register(lease(2))
    assert not mine.is_registered(lease(1))
    assert theirs.is_registered(lease(2))
    assert not mine.register(lease(1))


def test_part_of_the_samples_is_enough(tmp_path: Path) -> None:
    mine = fence(tmp_path)
    assert mine.register(lease(1))
    assert mine.register(lease(2, 8, 20))
    assert not mine.is_registered(lease(1))
    assert mine.register(lease(3, 20, 24))
    assert mine.is_registered(lease(2, 8, 20))


def test_same_samples_of_another_epoch_or_job_are_others(tmp_path: Path) -> None:
    mine = fence(tmp_path)
    assert mine.register(lease(7))
    assert mine.register(lease(3, epoch=2))
    assert fence(tmp_path, "other").register(lease(1, ledger_id="other"))
    assert mine.is_registered(lease(7))
    assert mine.is_registered(lease(3, epoch=2))


def test_lease_that_is_finished_is_fenced_too(tmp_path: Path) -> None:
    late, mine = fence(tmp_path), fence(tmp_path, writer="b")
    assert late.register(lease(1))
    assert mine.register(lease(2))
    mine.finish(lease(2))
    mine.remove()
    assert not late.is_registered(lease(1))
    assert not mine.is_registered(lease(2))


def test_lease_that_is_not_used_is_removed(tmp_path: Path) -> None:
    mine = fence(tmp_path)
    assert mine.register(lease(1))
    assert mine.register(lease(2, 12, 24))
    mine.remove(lease(1))
    assert not mine.is_registered(lease(1))
    assert mine.is_registered(lease(2, 12, 24))


def test_damaged_file_fences_every_lease(tmp_path: Path) -> None:
    mine = fence(tmp_path)
    for text in ("", "{", "[[1]]", "[1]", "{}", '[["a", 2]]'):
        assert mine.register(lease(1))
        (tmp_path / "leases.json").write_text(text)
        assert not mine.is_registered(lease(1))


def test_leases_left_by_other_jobs_are_bounded(tmp_path: Path) -> None:
    for number in range(MOST_OF_OTHER_JOBS + 20):
        name = f"job-{number}"
        assert fence(tmp_path, name).register(lease(1, ledger_id=name))
    last = f"job-{MOST_OF_OTHER_JOBS + 19}"
    assert fence(tmp_path, last).is_registered(lease(1, ledger_id=last))
    assert (tmp_path / "leases.json").read_text().count("job-") == MOST_OF_OTHER_JOBS + 1
