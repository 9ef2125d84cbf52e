"""`python -m elasticdl`: the `elasticdl` command of this very Python."""

from __future__ import annotations

import sys

from elasticdl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
