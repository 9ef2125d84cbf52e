"""The metadata of a dataclass field, which define a field of a TrainingJob's spec.

The parser, the schema of the CustomResourceDefinition and `kubectl explain` are derived from it, so that they cannot
differ from each other.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FIELD = "elasticdl.training_job_field"


class FieldKind(enum.Enum):
    """The type of a field's value in a document."""

    TEXT = "text"
    INTEGER = "a whole number"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    # A list of Kubernetes' own objects (volumes, tolerations); the API server checks them when pods are made.
    OBJECTS = "a list of objects"
    # A mapping of texts (a node selector).
    TEXTS = "a mapping of texts"
    # Quantities by name: {cpu: 500m, memory: 1Gi}.
    QUANTITIES = "quantities such as cpu: 500m"
    # A JobSpec document.
    JOB = "a job as `elasticdl train --dry_run` prints it"
    # Another dataclass of fields.
    SECTION = "an object"


@dataclass(frozen=True, kw_only=True)
class Field:
    """The description of a field besides its default, which is the dataclass field's."""

    key: str
    kind: FieldKind
    help: str
    minimum: int | None = None
    maximum: int | None = None
    # Other spellings that documents of PaddlePaddle EDL use.
    aliases: tuple[str, ...] = ()
    # The fields of a section.
    section: type[Any] | None = None
    # The default that the API server writes: only for fields that `kubectl scale` has to find.
    server_default: object = None


def training_job_field(
    kind: FieldKind,
    help: str,  # noqa: A002 - as for flags
    *,
    key: str,
    default: Any = dataclasses.MISSING,
    factory: Any = dataclasses.MISSING,
    minimum: int | None = None,
    maximum: int | None = None,
    aliases: tuple[str, ...] = (),
    section: type[Any] | None = None,
    server_default: object = None,
) -> Any:
    """Returns a dataclass field that is a field of the document, under `key`."""
    described = Field(
        key=key,
        kind=kind,
        help=help,
        minimum=minimum,
        maximum=maximum,
        aliases=aliases,
        section=section,
        server_default=server_default,
    )
    metadata = {_FIELD: described}
    if factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def fields_of(section: type[Any]) -> Mapping[str, Field]:
    """Returns the described fields of a dataclass by their attribute names, in the order they are written there."""
    return {
        item.name: item.metadata[_FIELD] for item in dataclasses.fields(section) if _FIELD in item.metadata
    }
