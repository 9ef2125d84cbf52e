"""The snapshot that a master keeps outside of its own disk, for a successor without the journal.

On Kubernetes it is a key of the job's object, written every few seconds. Such an object holds a megabyte in all, and
every write is sent to all its watchers, so the snapshot stays small: without state that is stored elsewhere (the ledger
of a checkpoint is in the checkpoint), without state that is restarted anyway (sums of an evaluation under way), without
old history. A text that is long all the same (thousands of unreadable ranges) is compressed.

It names its job: a snapshot of another job, or of an earlier one of the same name, is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.master.lifecycle.evaluation_history import kept_results

_FORMAT = 2
# Beyond this it is compressed.
_PLAIN_BYTES = 64_000
# Epoch ends are history; the callbacks of a worker that comes late go on from what is left.
_EPOCHS_KEPT = 100
_LONGEST_TEXT = 4_000
_LONGEST_MESSAGE = 300


def run_of(token: str) -> str:
    """Tells apart the jobs that had the same name one after the other. Says nothing about the token itself."""
    return hashlib.sha256(f"elasticdl run {token}".encode()).hexdigest()[:16]


def identity(spec: JobSpec, run: str, *, submitted: str | None = None) -> dict[str, Any]:
    """Identifies the job of a snapshot. `submitted`: the text of the stored JobSpec; another version would write the
    same job in other words.
    """
    text = to_yaml(spec) if submitted is None else submitted
    return {"job": spec.job_name, "run": run, "spec": hashlib.sha256(text.encode()).hexdigest()[:16]}


def pack(snapshot: dict[str, Any], *, of: dict[str, Any]) -> str:
    """`snapshot`: that of a JobState, which is left as it is. `of`: the job's `identity`."""
    text = json.dumps(_shortened(snapshot), separators=(",", ":"), ensure_ascii=False)
    document = {"format": _FORMAT, **of}
    if len(text) > _PLAIN_BYTES:
        document["packed"] = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
        return json.dumps(document, separators=(",", ":"))
    # The text is in the document as it is, not as a string in it.
    return f'{json.dumps(document, separators=(",", ":"))[:-1]},"state":{text}}}'


def unpack(text: str, *, of: dict[str, Any]) -> dict[str, Any]:
    """The snapshot; raises `UserError` if it is none of this job. `of`: the job's `identity`."""
    try:
        document = json.loads(text)
        found = document["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"The snapshot of job {of['job']} cannot be read: {error!r}.") from error
    if found != _FORMAT:
        raise UserError(
            f"The snapshot of job {of['job']} has format {found}, which this version cannot read."
        )
    for name, value in of.items():
        if document.get(name) != value:
            raise UserError(
                f"The snapshot is not of this job {of['job']}, but of "
                f"{'one with another JobSpec' if name == 'spec' else 'another one'} ({name} {document.get(name)})."
            )
    if "packed" in document:
        state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(document["packed"])))
        return state
    return dict(document["state"])


def _shortened(snapshot: dict[str, Any]) -> dict[str, Any]:
    saved, saving, evaluation = snapshot["saved"], snapshot["saving"], snapshot["evaluation"]
    roster = snapshot["roster"]
    results = kept_results(snapshot["results"])
    return {
        **snapshot,
        "epochs_ended": snapshot["epochs_ended"][-_EPOCHS_KEPT:],
        "results": results,
        "results_forgotten": snapshot["results_forgotten"] + len(snapshot["results"]) - len(results),
        **{name: snapshot[name][-_LONGEST_TEXT:] for name in ("message", "traceback", "last_error")},
        "failed": {
            node: {
                **failed,
                "message": failed["message"][:_LONGEST_MESSAGE],
                "traceback": failed["traceback"][-_LONGEST_MESSAGE:],
            }
            for node, failed in snapshot["failed"].items()
        },
        "saved": {**saved, "ledger": saved["ledger"] is not None or None} if saved else None,
        "saving": {**saving, "ledger": {}, "files": []} if saving else None,
        "evaluation": {**evaluation, "states": []} if evaluation else None,
        "roster": {
            **roster,
            "nodes": [{**node, "message": node["message"][:_LONGEST_MESSAGE]} for node in roster["nodes"]],
        },
    }
