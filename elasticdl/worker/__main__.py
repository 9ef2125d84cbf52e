"""`python -m elasticdl.worker`: the process of a worker that runs a model definition.

It asks for its job first of all. What it needs for the answer, the job's spec and what reads it, takes longer to import
than a master takes to answer: that is done meanwhile.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from elasticdl.wire.channel import read_token
from elasticdl.wire.security import NotTrusted
from elasticdl.worker.garbage_collection import nothing_collected
from elasticdl.worker.master_link import MasterLink, NotOfThisJob
from elasticdl.worker.tensor_memory import keep_memory


def main() -> int:
    keep_memory()
    token = read_token(os.environ["ELASTICDL_TOKEN_FILE"])
    link = MasterLink(address=os.environ["MASTER_ADDR"], token=token, node=os.environ["ELASTICDL_NODE"])
    try:
        reply = link.join(meanwhile=_import_the_rest)
    except NotOfThisJob as error:
        print(f"Exiting, replaced by another process: {error}", file=sys.stderr)
        return 0
    except NotTrusted as error:
        print(error, file=sys.stderr)
        return 1
    from elasticdl.worker.process import work

    return work(link, reply.job_spec, token)


def _import_the_rest() -> None:
    with nothing_collected():
        for name in ("elasticdl.worker.process", "yaml"):
            import_module(name)


if __name__ == "__main__":
    code = main()
    from elasticdl.worker.process import end

    end(code)
