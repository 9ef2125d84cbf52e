"""The settings of the master's decisions: a few numbers, taken once from the JobSpec."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from elasticdl.jobs.sections.training import ALLREDUCE
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.ledger.ledger import DatasetSpec

Kind = Literal["train", "evaluate", "predict"]
Program = Literal["definition", "command"]


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    kind: Kind = "train"
    program: Program = "definition"
    workers: int = 1
    # Parameter servers of ours, which hold the model of a definition.
    servers: int = 0
    # Copies of everything on them, where there are as many.
    replicas: int = 1
    # The other roles of a program of the user's own: parameter servers of its framework, chiefs, evaluators.
    other_roles: tuple[tuple[str, int], ...] = ()
    # The nodes of a program know each other's addresses, which belong to places.
    addressed: bool = False
    # There is a folder for checkpoints that all nodes see.
    saves: bool = True
    # Every worker has the whole model, and they exchange gradients.
    allreduce: bool = False
    # Gradients wait on parameter servers until there are enough of them.
    gradients_wait: bool = False
    batch_size: int = 64
    shard_size: int = 512
    epochs: int = 1
    shuffle: bool = True
    seed: int = 0
    max_step: int = 0
    # There is validation data; it is evaluated every so many steps (0: not by steps) and after every epoch.
    evaluates: bool = False
    evaluation_steps: int = 0
    checkpoint_steps: int = 0
    # A model, or predictions, are to be written when all is done.
    has_output: bool = False
    max_bad_records: int = 0
    # So many failures of a shard are borne; one more fails the job.
    max_shard_failures: int = 2
    max_node_failures: int = 3
    stall_factor: float = 20.0
    stall_floor_seconds: float = 60.0
    # A node of ours that has not joined for so long after its start hangs; so does a program that has not been heard
    # of, if others have been. 0: never.
    start_timeout_seconds: float = 600.0

    @property
    def worker_owns_state(self) -> bool:
        """The model lives in the workers and not on parameter servers."""
        return self.kind == "train" and self.servers == 0 and not self.runs_command

    @property
    def replaced_early(self) -> frozenset[str]:
        """Roles of which two nodes can have one place for a while: the one that goes and the one that comes."""
        if self.runs_command:
            # Two at one address would be mistaken for each other.
            return frozenset() if self.addressed else frozenset({"worker", "evaluator"})
        return frozenset() if self.worker_owns_state and not self.allreduce else frozenset({"worker"})

    @property
    def runs_command(self) -> bool:
        """The workers run a program with a loop of its own."""
        return self.program == "command"

    @property
    def shard_batches(self) -> int:
        return self.shard_size // self.batch_size

    @property
    def targets(self) -> dict[str, int]:
        """Returns the initial number of nodes of each role, in the order in which they are started."""
        if self.runs_command:
            return {**dict(self.other_roles), "worker": self.workers}
        return {"ps": self.servers, "worker": self.workers}

    def dataset(self, name: str, size: int) -> DatasetSpec:
        """The training data: shuffled, several epochs, each opened when the one before is closed."""
        return DatasetSpec(
            name=name,
            size=size,
            shard_size=self.shard_size,
            batch_size=self.batch_size,
            epochs=self.epochs,
            shuffle=self.shuffle,
            seed=self.seed,
            gated=True,
            max_shard_failures=self.max_shard_failures,
        )

    def single_pass(self, name: str, size: int, *, workers: int = 0) -> DatasetSpec:
        """Data gone through once and in order. With `workers` in shards so small that the wait for the last of
        them is short.
        """
        fair = -(-size // (4 * workers * self.batch_size)) * self.batch_size if workers else self.shard_size
        return dataclasses.replace(
            self.dataset(name, size),
            shard_size=max(self.batch_size, min(fair, self.shard_size)),
            epochs=1,
            shuffle=False,
            gated=False,
        )

    @classmethod
    def of(cls, spec: JobSpec) -> JobSettings:
        training, nodes = spec.training, spec.nodes
        command = spec.program == "command"
        allreduce = spec.kind == "train" and training.distribution_strategy == ALLREDUCE
        others = (("ps", nodes.num_ps), ("chief", nodes.num_chief), ("evaluator", nodes.num_evaluator))
        return cls(
            kind=spec.kind,
            program=spec.program,
            workers=nodes.num_workers,
            servers=nodes.num_ps if spec.kind == "train" and not command else 0,
            other_roles=others if command else (),
            addressed=spec.addressed,
            # The folder of a job on several machines is its master's alone.
            saves=(spec.runs_here and not nodes.hosts)
            or bool(spec.checkpoint.checkpoint_dir or spec.cluster.journal_dir),
            replicas=nodes.ps_replicas,
            batch_size=training.minibatch_size,
            # A step of all-reduce takes single batches of the order.
            shard_size=training.minibatch_size
            * (1 if allreduce and not command else training.num_minibatches_per_task),
            allreduce=allreduce,
            gradients_wait=training.grads_to_wait > 1,
            epochs=training.num_epochs if spec.kind == "train" else 1,
            shuffle=spec.data.shuffle,
            seed=spec.data.shuffle_seed,
            max_step=training.max_step,
            evaluates=bool(spec.data.validation_data),
            evaluation_steps=spec.evaluation.evaluation_steps,
            checkpoint_steps=spec.checkpoint.checkpoint_steps,
            has_output=bool(training.output) and spec.kind != "evaluate",
            max_bad_records=spec.data.max_bad_records,
            max_shard_failures=max(0, spec.nodes.max_shard_retries - 1),
            max_node_failures=spec.nodes.relaunch_on_worker_failure,
            stall_factor=spec.nodes.stall_factor,
            stall_floor_seconds=spec.nodes.stall_floor_seconds,
            start_timeout_seconds=spec.nodes.start_timeout_seconds,
        )
