"""Installs the Debian packages of faults and the browser: `python -m e2e.campaign.programs`, as root, before the tests.

Other users need them installed already, and namespaces of their own.
"""

from __future__ import annotations

import os

from e2e.cluster.programs import install

# By the command that shows whether it is there: partitions, namespaces, the library that moves a clock, and the browser
# of the dashboard's tests.
PACKAGES = {
    "iptables": "iptables",
    "ip": "iproute2",
    "unshare": "util-linux",
    "promtool": "prometheus",
    "gcc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
    "chromium": "chromium",
}

if __name__ == "__main__" and os.geteuid() == 0:
    install(PACKAGES)
