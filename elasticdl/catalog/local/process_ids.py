"""Process ids of the nodes of a running local job.

The supervisor of the job knows them and answers on the job's socket, which only the user who runs the job may open. For
people who attach a debugger or a profiler to a node, or kill one to see what happens.
"""

from __future__ import annotations

import socket

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.platforms.local.messages import Changed, ListNodes, Nodes, Watch, decode, encode

_TIMEOUT_SECONDS = 10.0


def node_process_ids(folder: JobFolder, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> dict[str, int]:
    """Returns process ids by node name, of the nodes that run now, the master among them."""
    found: dict[str, int] = {}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(str(folder.socket_path()))
            # A watch sends one message for every node and then goes on; the reply to the second request shows that
            # the first round is complete.
            connection.sendall(encode(Watch(id=1)) + encode(ListNodes(id=2)))
            with connection.makefile("rb") as lines:
                for line in lines:
                    answer = decode(line)
                    if isinstance(answer, Changed) and answer.pid is not None:
                        found[answer.node.name] = answer.pid
                    if isinstance(answer, Nodes):
                        return found
    except OSError:
        # The job has ended meanwhile, or its socket was never there.
        pass
    raise UserError(f"Job {folder.name} does not report its processes: it has {folder.state()}.")
