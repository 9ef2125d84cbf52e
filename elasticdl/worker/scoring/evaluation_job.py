"""The life of a worker in `elasticdl evaluate`: a model with given values, and metrics over the validation
data.
"""

from __future__ import annotations

from elasticdl.data.reader import Reader
from elasticdl.jobs.mode import Mode
from elasticdl.jobs.spec import JobSpec
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.model.model_store import restore
from elasticdl.worker.scoring.evaluation import Evaluator
from elasticdl.worker.trainer import Shard, Trainer


class ScoringLoop:
    def __init__(self, *, link: MasterLink, spec: JobSpec, trainer: Trainer, reader: Reader) -> None:
        self._link = link
        self._spec = spec
        self._trainer = trainer
        self._reader = reader
        self._evaluator = Evaluator(link, spec, trainer)
        self.lease_id = 0

    def run(self) -> None:
        self._build()
        callbacks = self._trainer.callbacks(leader=False, epochs=1)
        while True:
            serial, directive = self._link.latest()
            if directive.finished or directive.drain:
                return
            if directive.evaluation:
                self._evaluator.work(
                    directive,
                    self._reader,
                    generation=directive.generation,
                    callbacks=callbacks,
                    between=lambda: not self._link.directive().drain,
                )
            elif directive.evaluation_to_finish and self._evaluator.finish(directive, self._trainer):
                continue
            self._link.wait(lambda: self._link.serial != serial)  # noqa: B023 - called before the next round

    def _build(self) -> None:
        shard = Shard(lease_id=0, epoch=0, start=0, end=min(len(self._reader), 8))
        batches = self._trainer.batches(
            self._reader, [shard], mode=Mode.EVALUATION, batch_size=8, max_bad_records=8
        )
        for batch in batches:
            if batch.size:
                self._trainer.build(batch)
                break
        restore(self._trainer, self._spec.checkpoint.checkpoint_dir_for_init)
