"""The process of a worker: loads the model definition, runs its loop, and reports errors to the master."""

from __future__ import annotations

import logging
import os
import signal
import sys
from functools import partial

from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml
from elasticdl.jobs.zoo_import import users_traceback
from elasticdl.platforms.platform import (
    EXIT_DEFINITION_ERROR,
    EXIT_DRAINED,
    EXIT_OUT_OF_MEMORY,
    EXIT_TERMINATED,
)
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.definition import ProgramError, load_definition
from elasticdl.worker.environment import wait_asleep
from elasticdl.worker.garbage_collection import keep_all, nothing_collected
from elasticdl.worker.loop import Loop
from elasticdl.worker.master_link import MasterLink

log = logging.getLogger("elasticdl.worker")


def work(link: MasterLink, job_spec: str, token: str) -> int:
    """Runs until the job has no more work for this worker. Returns the exit code; the master has received the
    reason.
    """
    spec = from_yaml(job_spec)
    logging.basicConfig(
        level=spec.cluster.log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    signal.signal(signal.SIGTERM, lambda *_: link.leave())
    loop: Loop | None = None
    try:
        with nothing_collected():
            loop = _make_loop(link, spec, token)
        loop.run()
    except BadRecords as error:
        return _fail(link, "data", str(error), "", 0, EXIT_DEFINITION_ERROR)
    except ProgramError as error:
        lease_id = loop.lease_id if loop is not None else 0
        message = f"{error.summary}\n{error.hint}" if error.hint else error.summary
        return _fail(link, "program", message, error.traceback, lease_id, 1)
    except UserError as error:
        return _fail(link, "definition", str(error), "", 0, EXIT_DEFINITION_ERROR)
    except MemoryError as error:
        return _fail(link, "memory", f"Out of memory: {error}", "", 0, EXIT_OUT_OF_MEMORY)
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything; the master gets the error
        lease_id = loop.lease_id if loop is not None else 0
        message = f"{type(error).__name__}: {error}"
        return _fail(link, "program", message, users_traceback(error), lease_id, 1)
    return _exit_code(link)


def _make_loop(link: MasterLink, spec: JobSpec, token: str) -> Loop:
    if spec.nodes.num_ps:
        wait_asleep()
    # This imports the framework, which takes seconds: a job that is over does not wait for it.
    with link.unneeded(partial(_leave_at_once, link)):
        definition = load_definition(
            model_zoo=spec.model.model_zoo,
            model_def=spec.model.model_def,
            names={
                name: getattr(spec.model, name)
                for name in (
                    "feed",
                    "loss",
                    "optimizer",
                    "callbacks",
                    "eval_metrics_fn",
                    "custom_data_reader",
                    "prediction_outputs_processor",
                )
            },
            model_params=spec.model.model_params,
        )
    keep_all()
    # After the framework, on purpose: see there.
    from elasticdl.worker.assembly import make_loop

    return make_loop(link, spec, token, definition)


def _leave_at_once(link: MasterLink) -> None:
    log.info("Exiting: there is no work for this worker.")
    end(_exit_code(link))


def _exit_code(link: MasterLink) -> int:
    """Returns the exit code of a worker that has done all its work."""
    return EXIT_TERMINATED if link.terminated else EXIT_DRAINED


def end(status: int) -> None:
    """Frameworks keep threads that must not be torn down in the middle of a computation: everything of ours is done."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Also where the reader of the output is gone.
        os._exit(status)


def _fail(link: MasterLink, kind: str, message: str, trace: str, lease_id: int, code: int) -> int:
    log.error("%s\n%s", message, trace)
    link.call(
        link.stub.Fail,
        pb.FailRequest(node=link.node, kind=kind, message=message, traceback=trace, lease_id=lease_id),
    )
    return code
