"""Divides the time of a job: training that counts, and lost time by cause. Pure.

    master away       between two statuses that are far apart, no master ran
    starting          no sample was done yet
    evaluating        the model is evaluated in a job that trains
    saving            epochs end, models are exported, predictions merged, a stop is prepared
    resizing          3 of 4 desired workers are ready: a quarter of the time
    stragglers        workers waited for slower ones, as the master has counted it
    retraining        (time that trained) · again / (done + again), in samples

The controller accounts for TrainingJobs by the same formulas (`controller/reconcile/goodput.py`), from
the pods that it sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticdl.jobs.status import JobStatus

_SAVING = ("exporting", "merging the predictions", "ending an epoch", "saving before the stop", "stopping")
_TRAINERS = ("worker", "chief")


@dataclass(frozen=True, kw_only=True)
class TimeAccount:
    """Seconds. `worked`: all time with workers at work, whatever became of it."""

    worked: float = 0.0
    starting: float = 0.0
    evaluating: float = 0.0
    saving: float = 0.0
    resizing: float = 0.0
    master_away: float = 0.0
    stragglers: float = 0.0
    retraining: float = 0.0

    @property
    def training(self) -> float:
        """Returns the time of training that counts in the end."""
        return max(self.worked - self.stragglers - self.retraining, 0.0)

    @property
    def total(self) -> float:
        return self.worked + self.starting + self.evaluating + self.saving + self.resizing + self.master_away

    @property
    def goodput(self) -> float | None:
        """The share of the time that counts. None before there is any."""
        return self.training / self.total if self.total else None

    def lost(self) -> dict[str, float]:
        """Returns lost seconds by cause, as shown to people."""
        return {
            "starting": self.starting,
            "resizing": self.resizing,
            "evaluating": self.evaluating,
            "saving": self.saving,
            "stragglers": self.stragglers,
            "retraining": self.retraining,
            "master away": self.master_away,
        }

    def after(self, before: JobStatus, now: JobStatus, *, most_seconds: float) -> TimeAccount:
        """Returns the account with the time between two statuses, which belongs to the state of the first.

        `most_seconds`: of a longer time the rest passed without a master.
        """
        # A clock that jumps back adds nothing.
        passed = max(now.now - before.now, 0.0)
        seconds = min(passed, most_seconds)
        account = replace(self, master_away=self.master_away + passed - seconds)
        if before.samples_done == 0 and before.samples_again == 0 and before.phase != "evaluating":
            account = replace(account, starting=account.starting + seconds)
        elif before.phase in _SAVING:
            account = replace(account, saving=account.saving + seconds)
        elif before.phase == "evaluating" and before.kind == "train":
            account = replace(account, evaluating=account.evaluating + seconds)
        else:
            desired = sum(before.desired_nodes.get(role, 0) for role in _TRAINERS)
            ready = sum(before.ready_nodes(role) for role in _TRAINERS)
            share = min(ready / max(desired, 1), 1.0)
            account = replace(
                account,
                worked=account.worked + seconds * share,
                resizing=account.resizing + seconds * (1.0 - share),
            )
        return account._divided(now)

    def _divided(self, now: JobStatus) -> TimeAccount:
        """Divides the lost part of the time at work. No part falls: a master may have lost its count."""
        stragglers = min(max(self.stragglers, now.straggler_seconds), self.worked)
        trained = now.samples_done + now.samples_again
        part = now.samples_again / trained if trained else 0.0
        retraining = max(self.retraining, (self.worked - stragglers) * part)
        return replace(self, stragglers=stragglers, retraining=min(retraining, self.worked - stragglers))

    def rounded(self) -> TimeAccount:
        """Rounds all times to the millisecond."""
        return TimeAccount(**{name: round(value, 3) for name, value in vars(self).items()})
