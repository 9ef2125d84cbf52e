"""What holds for all tests: signals have their default handlers, in any environment, no test counts on a
speed of the machine, and a forked process leaves alone what it inherited.

A shell that runs them in the background has interrupts ignored, nohup hang-ups; processes that tests start would
inherit that, and those that are to be ended by such a signal would not. Hypothesis, left alone, fails a test whose
examples take long to make or to try. Tests run masters in their own process, where a job has them in another one: what
they leave for the garbage collector waits, when it is let go of, for a thread of gRPC, and a forked process has no such
thread. It would wait forever.
"""

from __future__ import annotations

import gc
import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

os.register_at_fork(after_in_child=gc.freeze)
