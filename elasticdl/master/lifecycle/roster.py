"""The desired nodes of a job, and the reaction to the end of each.

A plain state machine: statuses of nodes and desired counts are its input, nodes to start or to drain its output.
Numbers only grow: the replacement of worker-0 in a job of four is worker-4, so a name in a log, in the ledger or at a
parameter server means one process forever. Parameter servers have a *slot* beside their number, the share of the model
they serve, which their replacement takes over.

Failure modes
    Killed from outside (a signal, a preemption, a lost machine): replaced without limit; as soon as it is terminating
    where the replacement can work beside it, else when it has ended. In either case it gets no more work from then on.
    Failed by its own error or for lack of memory: replaced as often as --relaunch_on_worker_failure allows, counted
    along the line of replacements; then the job fails with that error. Cannot work at all (the definition is wrong, the
    command does not exist): the job fails at once. A user's program may exit by itself, with 0: its place is completed,
    and stays empty. The batches of a dead worker are known only when the parameter servers have reported them, and one
    of them hangs: the worker is replaced all the same, and its leases wait.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR, EndReason, NodePhase, NodeStatus

# The roles of a program that train; others serve them.
TRAINERS = ("chief", "worker")
# Reasons for which a replacement may work where the first one did not, at most so many times.
_FAILURES = (EndReason.ERROR, EndReason.OUT_OF_MEMORY, EndReason.COMPLETED)
# A cluster that takes away again what is added must not make this endless.
_MOST_DOUBLINGS = 10


@dataclass(kw_only=True)
class Node:
    name: str
    role: str
    number: int
    slot: int
    # How often the nodes it replaces failed by themselves.
    failures: int = 0
    phase: NodePhase = NodePhase.PENDING
    reason: EndReason = EndReason.NONE
    message: str = ""
    incarnation: str = ""
    address: str = ""
    # It is to go, and its place is another's already.
    draining: bool = False
    # It is terminating. Where two cannot have one place, the next one comes when it has gone.
    leaving: bool = False
    # How often those before it, and it, ran out of memory.
    memory_doublings: int = 0

    @property
    def alive(self) -> bool:
        return self.phase in (NodePhase.PENDING, NodePhase.RUNNING)

    @property
    def joined(self) -> bool:
        return self.alive and bool(self.incarnation)

    @property
    def begun(self) -> bool:
        return self.joined or self.phase is NodePhase.RUNNING

    @property
    def seen(self) -> bool:
        """Whether the node has started, or was terminating before: if the platform does not know it, it is gone."""
        return self.begun or (self.alive and self.leaving)

    @property
    def vacated(self) -> bool:
        """Whether the node has ended, and is still to be accounted for."""
        return self.alive and self.reason is not EndReason.NONE

    @property
    def goes(self) -> bool:
        """Whether the node gets no more work. If it ends for that reason, it has not completed."""
        return self.draining or self.leaving


class NodeTable(dict[str, Node]):
    """Nodes by name, and by role: what is asked of the few servers must not go through thousands of workers.

    Nodes are set and deleted one by one, or all deleted; a node keeps its role.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_role: dict[str, dict[str, Node]] = {}

    def __setitem__(self, name: str, node: Node) -> None:
        super().__setitem__(name, node)
        self._by_role.setdefault(node.role, {})[name] = node

    def __delitem__(self, name: str) -> None:
        del self._by_role[self[name].role][name]
        super().__delitem__(name)

    def clear(self) -> None:
        self._by_role.clear()
        super().clear()

    def of_role(self, role: str) -> Iterable[Node]:
        return self._by_role.get(role, {}).values()


@dataclass(frozen=True, kw_only=True)
class JobFailure:
    """The job cannot go on, and why."""

    message: str


@dataclass(kw_only=True)
class Roster:
    """The nodes of a job, wanted and real."""

    max_failures: int
    targets: dict[str, int]
    # Nodes run a program of the user's own, which does not join, and ends when it has nothing more to do.
    run_to_their_end: bool = False
    # Roles whose nodes are replaced as soon as they are terminating, while they finish what they do.
    replaced_early: frozenset[str] = frozenset()
    nodes: NodeTable = field(default_factory=NodeTable)
    next_number: dict[str, int] = field(default_factory=dict)
    # The job is over: no node is replaced any more.
    closing: bool = False

    def alive(self, role: str) -> list[Node]:
        return [node for node in self.nodes.of_role(role) if node.alive]

    def wanted(self) -> list[Node]:
        """Creates the records of nodes that are missing and returns all that wait to be started."""
        if not self.closing:
            for role, target in self.targets.items():
                self._fill(role, target)
        return [
            n
            for n in self.nodes.values()
            if n.phase is NodePhase.PENDING and not n.incarnation and not n.goes
        ]

    def _fill(self, role: str, target: int) -> None:
        staying = [node for node in self.alive(role) if not node.draining]
        if role == "ps":
            # A server beyond the places goes when nothing is on it any more, and until then takes no place.
            staying = [node for node in staying if node.slot < target]
        taken = {node.slot for node in staying} | self._done(role)
        for slot in range(target):
            if len(taken) >= target:
                break
            if slot not in taken:
                self._add(role, slot)
                taken.add(slot)

    def _done(self, role: str) -> set[int]:
        """The places whose program has come to its end."""
        if not self.run_to_their_end:
            return set()
        return {
            n.slot
            for n in self.nodes.of_role(role)
            if n.reason is EndReason.COMPLETED and not n.goes and n.slot < self.targets[role]
        }

    def completed(self, role: str) -> bool:
        """Every place of that role has come to its end."""
        return len(self._done(role)) >= self.targets.get(role, 0)

    def reopen(self, role: str) -> None:
        """Makes completed nodes of a role necessary once more."""
        for name in [n.name for n in self.nodes.of_role(role) if not n.alive]:
            del self.nodes[name]

    def clear(self) -> None:
        """All nodes are gone, and their failures are forgotten. Numbers continue."""
        self.nodes.clear()
        self.closing = False

    def _add(self, role: str, slot: int) -> Node:
        number = self.next_number.get(role, 0)
        self.next_number[role] = number + 1
        before = [n for n in self.nodes.of_role(role) if n.slot == slot]
        node = Node(
            name=f"{role}-{number}",
            role=role,
            number=number,
            slot=slot,
            failures=before[-1].failures if before else 0,
            memory_doublings=before[-1].memory_doublings if before else 0,
        )
        self._forget_old(role, slot)
        self.nodes[node.name] = node
        return node

    def _forget_old(self, role: str, slot: int) -> None:
        # A job that is preempted for weeks must not grow a list: one ended node a slot is enough to tell why.
        ended = [n.name for n in self.nodes.of_role(role) if n.slot == slot and not n.alive]
        for name in ended[:-1]:
            del self.nodes[name]

    def join(self, name: str, incarnation: str, address: str) -> bool:
        """A node says it is up. False if it is not one of ours (any more)."""
        node = self.nodes.get(name)
        if node is None or not node.alive or (node.incarnation and node.incarnation != incarnation):
            return False
        node.incarnation = incarnation
        node.address = address
        node.phase = NodePhase.RUNNING
        return True

    def observe(self, status: NodeStatus) -> tuple[Node | None, JobFailure | None]:
        """Applies the platform's status of a node. Returns the node if it has just ended, and the consequence for the
        job.
        """
        node = self.nodes.get(status.name)
        if node is None or not node.alive:
            return None, None
        if status.phase in (NodePhase.PENDING, NodePhase.RUNNING):
            node.phase = NodePhase.RUNNING if node.incarnation else status.phase
            node.message = status.message
            if self.run_to_their_end and node.phase is NodePhase.RUNNING:
                node.incarnation = node.incarnation or "process"
            return None, None
        if status.phase is NodePhase.LEAVING:
            node.message = status.message
            node.leaving = True
            node.draining = node.draining or node.role in self.replaced_early
            return None, None
        failure = None if node.vacated else self._consequence(node, status)
        node.phase = status.phase
        node.reason = status.reason
        node.message = status.message
        return node, failure

    def vacate(self, status: NodeStatus) -> None:
        """A node has ended and is still to be accounted for, which may take a while: the next one does not wait for
        that. If there is to be no next one, because the job fails with it, nothing happens until it is (`observe`).
        """
        node = self.nodes.get(status.name)
        if node is None or not node.alive or node.vacated:
            return
        after = dataclasses.replace(node)
        if self._consequence(after, status) is not None:
            return
        node.failures, node.memory_doublings = after.failures, after.memory_doublings
        node.reason = status.reason
        node.message = status.message
        node.draining = True

    def _consequence(self, node: Node, status: NodeStatus) -> JobFailure | None:
        if status.reason is EndReason.OUT_OF_MEMORY:
            node.memory_doublings += 1
        if self.closing or node.goes or status.reason is EndReason.STOPPED:
            return None
        if status.reason is EndReason.CANNOT_START:
            return JobFailure(message=f"{node.name} cannot start: {status.message}")
        if status.exit_code == EXIT_DEFINITION_ERROR and not self.run_to_their_end:
            return JobFailure(message=f"{node.name} cannot run this model definition")
        if status.reason is EndReason.COMPLETED and self.run_to_their_end:
            return None
        if status.gets_more_memory and node.memory_doublings <= _MOST_DOUBLINGS:
            # It had less than it may have: no fault of the program's yet.
            return None
        if status.reason in _FAILURES:
            node.failures += 1
            what = {
                EndReason.OUT_OF_MEMORY: "ran out of memory"
                + (f" ({status.message})" if status.message else ""),
                EndReason.COMPLETED: "ended before the job did",
            }.get(status.reason, f"ended with exit code {status.exit_code}")
            if status.reason is EndReason.OUT_OF_MEMORY and 1 < node.memory_doublings <= self.max_failures:
                # The first time others may have used the memory. Now it is the program, and the next node would only
                # train to the same point again.
                return JobFailure(
                    message=f"{node.name} {what}, as a worker before it did: a smaller --minibatch_size or more "
                    "memory may help"
                )
            if node.failures > self.max_failures:
                times = "once" if node.failures == 1 else f"{node.failures} times"
                return JobFailure(
                    message=f"{node.name} {what}; this {node.role} has now failed {times} "
                    f"(--relaunch_on_worker_failure={self.max_failures})"
                )
        return None

    def scale(self, role: str, target: int, *, victims: Collection[str] = ()) -> None:
        """Sets the count of a role. Drains the victims, then the newest nodes above the target.

        Names that are no live node of the role are ignored: a victim may end between the decision and this. If more
        victims than necessary are drained, `wanted` returns their replacements.
        """
        self.targets[role] = target
        for node in self.alive(role):
            if node.name in victims:
                node.draining = True
        staying = [n for n in self.alive(role) if not n.draining]
        for node in sorted(staying, key=lambda n: n.number)[target:]:
            node.draining = True
        # The ones that stay must have the slots below the target, or a gap would be filled twice.
        keep = sorted((n for n in self.alive(role) if not n.draining), key=lambda n: n.number)
        free = [slot for slot in range(target) if slot not in {n.slot for n in keep}]
        for node in keep:
            if node.slot >= target:
                node.slot = free.pop(0)

    def leader(self) -> Node | None:
        """The worker whose callbacks may write files and that does what only one must do: the oldest at
        work.
        """
        workers = [n for n in self.alive("worker") if n.incarnation and not n.draining]
        return min(workers, key=lambda n: n.number, default=None)

    def snapshot(self) -> dict[str, Any]:
        return {
            "targets": self.targets,
            "next_number": self.next_number,
            "closing": self.closing,
            "nodes": [dataclasses.asdict(node) for node in self.nodes.values()],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.targets = dict(snapshot["targets"])
        self.next_number = dict(snapshot["next_number"])
        self.closing = snapshot["closing"]
        self.nodes = NodeTable()
        for fields in snapshot["nodes"]:
            node = Node(
                **{**fields, "phase": NodePhase(fields["phase"]), "reason": EndReason(fields["reason"])}
            )
            self.nodes[node.name] = node
