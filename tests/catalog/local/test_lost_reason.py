"""A master that gives up while the disk is full: the reason is found wherever it was written."""

from __future__ import annotations

from elasticdl.catalog.local.runner import reason_given_up


def test_reason_in_the_log_is_shown() -> None:
    lines = ["x INFO elasticdl.master: begun", "x ERROR elasticdl.master: The journal cannot be written."]
    assert reason_given_up(lines, "exit code 18") == "The journal cannot be written."


def test_reason_that_the_log_lacks_is_the_last_output_in_memory() -> None:
    message = "exit code 18; last output: status.json cannot be written: No space left on device."
    assert reason_given_up(["Traceback (most recent call last):"], message).endswith(message)
