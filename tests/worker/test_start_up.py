"""A worker asks for its job before it loads anything that the job's framework brings along."""

import subprocess
import sys


def test_numpy_is_left_to_the_framework() -> None:
    program = "import elasticdl.worker.__main__, sys; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
