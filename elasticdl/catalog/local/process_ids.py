"""Which process of this machine is which node of a running job.

The job's keeper knows, and tells whoever may open the job's socket: the user who runs the job. Meant for people
who want to look at a node with a debugger or a profiler, or to kill one and see what happens.
"""

from __future__ import annotations

import socket

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.platforms.local.messages import Changed, ListNodes, Nodes, Watch, decode, encode

_SECONDS = 10.0


def node_processes(folder: JobFolder) -> dict[str, int]:
    """Process ids by node name, of the nodes that run at this moment, the master among them."""
    found: dict[str, int] = {}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(str(folder.socket_path()))
            # A watch is answered once for every node and then goes on; the answer to the second request shows
            # that the first round is over.
            connection.sendall(encode(Watch(id=1)) + encode(ListNodes(id=2)))
            with connection.makefile("rb") as lines:
                for line in lines:
                    answer = decode(line)
                    if isinstance(answer, Changed) and answer.pid is not None:
                        found[answer.node.name] = answer.pid
                    if isinstance(answer, Nodes):
                        return found
    except OSError:
        # It has ended since somebody looked, or its path was never there.
        pass
    raise UserError(f"Job {folder.name} does not tell its processes: it has {folder.state()}.")
