"""What holds for all tests: signals mean what they usually mean, whoever started the tests.

A shell that runs them in the background has interrupts ignored, nohup hang-ups; processes that tests start would
inherit that, and those that are to be ended by such a signal would not.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
