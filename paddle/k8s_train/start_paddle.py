"""Runs the node that the variables of the pod describe: finds the other pods of the Job, starts its parameter servers
and its trainer, and watches over them. Flags are those of `paddle train`.
"""

import sys

from elasticdl.paddle_compat.cluster.node import main

if __name__ == "__main__":
    sys.exit(main())
