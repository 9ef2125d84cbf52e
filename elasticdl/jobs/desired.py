"""Desired: what users and the controller want of a running job, and what its master reconciles to.

It is level-based: it says how many nodes of a role there should be, not how many to add. Each change has a
`generation` one above the last; the master reports the generation it has acted on, and the result, in its status
(`JobStatus.observed_generation`, `JobStatus.desired_result`). A writer that waits for its change waits for that number.

Roles that are not listed stay as they are. `victims` are the workers to drain first; the newest follow if victims do
not suffice. Parameter servers cannot be named: the ones in the last places leave first. `stop` is the reason to stop
the job for, and overrides the rest. `pause` is the reason to suspend it for: its pods are about to be deleted, and the
master saves a checkpoint before and reports it (`JobStatus.is_ready_to_pause`); any other change ends the pause.

Failure modes
    No JSON, a wrong type, a newer version, a negative count: `DesiredError`, which the master reports as the
    result. Nothing is done then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.json_codec import BadDocument, check_version, decode, encode

DESIRED_VERSION = 1


class DesiredError(UserError):
    """The desired state of a job cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Desired:
    """The desired state of a job. The one of generation 0 asks for nothing."""

    generation: int = 0
    # Counts by role.
    nodes: Mapping[str, int] = field(default_factory=dict)
    # Names of nodes, such as worker-3.
    victims: tuple[str, ...] = ()
    stop: str = ""
    pause: str = ""

    @property
    def is_empty(self) -> bool:
        return not self.nodes and not self.victims and not self.stop and not self.pause

    def with_nodes(self, nodes: Mapping[str, int], *, victims: Sequence[str] = ()) -> Desired:
        """Returns the next generation, with other counts for these roles."""
        return Desired(
            generation=self.generation + 1,
            nodes={**self.nodes, **nodes},
            victims=tuple(dict.fromkeys((*self.victims, *victims))),
        )

    def with_stop(self, reason: str) -> Desired:
        """Returns the next generation, which stops the job."""
        return Desired(generation=self.generation + 1, stop=reason)

    def with_pause(self, reason: str) -> Desired:
        """Returns the next generation, which makes the job ready to be suspended. Counts stay."""
        return replace(self, generation=self.generation + 1, victims=(), pause=reason)

    def next_empty(self) -> Desired:
        """Returns a desired state that asks for nothing: the base of a change after this one was acted on."""
        return Desired(generation=self.generation)

    def to_json(self) -> dict[str, Any]:
        return {"version": DESIRED_VERSION, **encode(self)}

    def to_text(self) -> str:
        return json.dumps(self.to_json())

    @classmethod
    def from_text(cls, text: str) -> Desired:
        """Empty text asks for nothing. Raises `DesiredError`."""
        try:
            document = json.loads(text or "{}")
            if not isinstance(document, Mapping):
                raise BadDocument("desired: expected an object")
            check_version(document, newest=DESIRED_VERSION, what="desired")
            found = decode(cls, document, path="desired")
        except ValueError as error:
            raise DesiredError(f"The desired state of the job cannot be read: {error}.") from None
        for role, count in found.nodes.items():
            if count < 0:
                raise DesiredError(f"The desired state of the job asks for {count} {role} nodes.")
        return found
