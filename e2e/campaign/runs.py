"""One run of the campaign: a job in one strategy, one kind of fault, and what the parameters say afterwards.

What counts as correct: the job succeeds, the audit is exact, and each sample was applied once in each epoch. Where the
fault may end a job (a full disk, a journal that is damaged beyond recovery) it has to say why; a job started from its
last checkpoint then has to come to the same parameters. If the audit itself says that some samples may count twice,
that is correct, too: it is never allowed for a fault that leaves the journal whole.
"""

from __future__ import annotations

import enum
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.campaign.counting_job import (
    OwnLoopJob,
    find_local_miscounts,
    find_miscounts,
    start_counting,
    start_own_loop,
)
from e2e.campaign.faults import FAULTS, DamagedJournals, Fault
from e2e.conftest import Job

SIZE, EPOCHS = 768, 3
# While faults strike, a batch takes so long, and then no longer than it needs.
_SECONDS_PER_BATCH = 0.06
_START_SECONDS = 200.0

OWN_LOOP = "own-loop"
STRATEGIES: dict[str, tuple[str, ...]] = {
    "servers": ("--num_workers=2", "--num_ps=3", "--checkpoint_steps=40"),
    "one-server": ("--num_workers=2", "--num_ps=1", "--checkpoint_steps=40"),
    "synchronous": ("--num_workers=2", "--num_ps=2", "--grads_to_wait=2", "--use_async=false"),
    "local": ("--num_workers=1", "--num_ps=0", "--distribution_strategy=Local", "--checkpoint_steps=40"),
    "allreduce": ("--num_workers=2", "--distribution_strategy=AllreduceStrategy", "--checkpoint_steps=40"),
    OWN_LOOP: ("--num_workers=2", "--distribution_strategy=AllreduceStrategy"),
}
# An update of so many batches is their mean.
_BATCHES_IN_UPDATE = {"synchronous": 2}
# Their models are in the workers.
_LOCAL = ("local", "allreduce", OWN_LOOP)


class Outcome(enum.Enum):
    EXACT = "exact"
    # The audit names samples that may count twice.
    DECLARED = "declared"
    # The job ended and said why, and had no checkpoint yet.
    EXPLAINED = "explained"
    # The same, and the next job went on from its checkpoint to exact parameters.
    RESUMED = "resumed"


@dataclass(frozen=True, kw_only=True)
class Run:
    seed: int
    strategy: str
    fault: str

    @classmethod
    def draw(cls, seed: int, *, strategies: list[str], faults: list[str]) -> Run:
        source = random.Random(f"run {seed}")
        return cls(seed=seed, strategy=source.choice(strategies), fault=source.choice(faults))

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.strategy}, {self.fault}"


@dataclass(frozen=True, kw_only=True)
class Checked:
    outcome: Outcome
    events: list[str] = field(default_factory=list)


def check(run: Run, folder: Path) -> Checked:
    """Raises `AssertionError` with the job's output if something is wrong."""
    source = random.Random(f"{run.seed} {run.strategy} {run.fault}")
    gates = folder / "gates"
    gates.mkdir()
    fault = FAULTS[run.fault](folder, source)
    fault.home.mkdir(exist_ok=True)
    jobs: list[Job] = []

    def start(home: Path, *arguments: str, faulty: bool) -> Any:
        def start_job(*words: str, environment: dict[str, str]) -> Job:
            names = {
                "ELASTICDL_TEST_GATES": str(gates),
                "ELASTICDL_THREADS": "1",
                **environment,
                **(fault.environment if faulty else {}),
            }
            kind = OwnLoopJob if run.strategy == OWN_LOOP else Job
            jobs.append(kind(home, [*words], names, prefix=fault.prefix if faulty else ()))
            return jobs[-1]

        flags = (
            *STRATEGIES[run.strategy],
            # Whatever takes longer than this is found to hang. A fault is no reason to give up.
            "--stall_floor_seconds=4",
            "--relaunch_on_worker_failure=100",
        )
        if run.strategy == OWN_LOOP:
            return start_own_loop(
                start_job, folder, *flags, *arguments, size=SIZE, epochs=EPOCHS, seed=run.seed
            )
        return start_counting(
            start_job,
            folder,
            *flags,
            "--max_shard_retries=100",
            *([f"--output={folder}/model"] if run.strategy in _LOCAL else []),
            *arguments,
            size=SIZE,
            epochs=EPOCHS,
            seed=run.seed,
            model="local_model" if run.strategy in _LOCAL else "model",
        )

    try:
        job = start(fault.home, faulty=True)
        _strike(job, fault, gates)
        outcome = _judge(job, fault, run, folder)
        if outcome is Outcome.EXPLAINED and list((folder / "checkpoints").glob("version-*")):
            (folder / "home-2").mkdir()
            resumed = start(
                folder / "home-2", f"--checkpoint_dir_for_init={folder}/checkpoints", faulty=False
            )
            _assert_counted(resumed, run, folder, fault)
            outcome = Outcome.RESUMED
        return Checked(outcome=outcome, events=fault.events)
    except AssertionError as error:
        raise AssertionError(f"{run}; {', '.join(fault.events)}:\n{error}") from None
    finally:
        for each in jobs:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()
        if (folder / "disk").exists():
            shutil.copytree(
                folder / "disk", folder / "disk-left", ignore=shutil.ignore_patterns("*.sock", ".*")
            )
        fault.close()


def _strike(job: Job, fault: Fault, gates: Path) -> None:
    pace = gates / "pace"
    pace.write_text(str(_SECONDS_PER_BATCH))
    end = time.monotonic() + _START_SECONDS
    while not list(gates.glob("trained-*")):
        assert job.process.poll() is None, f"the job ended before it trained:\n{job.output}"
        assert time.monotonic() < end, f"the job does not begin to train:\n{job.output}\n{job.logs()}"
        time.sleep(0.05)
    fault.run(job)
    temporary = gates / "pace.new"
    temporary.write_text("0")
    temporary.replace(pace)


def _judge(job: Job, fault: Fault, run: Run, folder: Path) -> Outcome:
    if job.wait() != 0:
        explained = any(words in job.output for words in fault.explanations)
        assert explained, f"the job failed without a reason:\n{job.output}\n{job.logs()}"
        job.assert_nothing_left()
        return Outcome.EXPLAINED
    if "twice" in job.audit():
        assert isinstance(fault, DamagedJournals), job.audit()
        return Outcome.DECLARED
    _assert_counted(job, run, folder, fault)
    return Outcome.EXACT


def _assert_counted(job: Job, run: Run, folder: Path, fault: Fault) -> None:
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert "twice" not in job.audit() or isinstance(fault, DamagedJournals), job.audit()
    find: Callable[[], list[str]] = (
        (lambda: find_local_miscounts(folder / "model", epochs=EPOCHS))
        if run.strategy in _LOCAL
        else (
            lambda: find_miscounts(
                folder / "checkpoints",
                size=SIZE,
                epochs=EPOCHS,
                batches_in_update=_BATCHES_IN_UPDATE.get(run.strategy, 1),
            )
        )
    )
    miscounts = find()
    assert not miscounts, "\n".join([*miscounts, str(job.audit()), job.output, job.logs()])
