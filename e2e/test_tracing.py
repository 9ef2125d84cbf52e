"""The trace of a job whose worker and master are killed, as a collector gets it: one trace, and nothing in it twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from e2e.conftest import wait_until
from tests.otlp_receiver import attributes, collector

SIZE = 1437


def test_one_trace_for_job_whose_worker_and_master_are_killed(
    start_gated: Callable[..., Any], gates: Any
) -> None:
    gates.hold("train")
    gates.hold("epoch-0")
    with collector() as received:
        job = start_gated(f"--otlp_endpoint={received.url}", environment={"OTEL_BSP_SCHEDULE_DELAY": "200"})
        gates.wait_for("train", 2)
        job.kill("worker-0")
        gates.release("train")
        gates.wait_for("epoch-0")
        # The first master has sent the shards of its epoch.
        wait_until(lambda: len(received.named("shard")) >= 10, "the shards of the first epoch are recorded")
        job.kill("master")
        gates.release("epoch-0")
        job.assert_exact(epochs=2, size=SIZE)

    assert len({span["traceId"] for span in received.spans}) == 1
    (whole,) = received.named("job")
    assert attributes(whole)["elasticdl.state"] == "succeeded"
    epochs = {span["name"]: span for span in received.named("training epoch")}
    assert {span["parentSpanId"] for span in epochs.values()} == {whole["spanId"]}
    shards = [span for span in received.named("shard") if attributes(span)["elasticdl.dataset"] == "training"]
    # What the second master began, and what the first one had.
    assert {attributes(span)["elasticdl.epoch"] for span in shards} == {0, 1}
    last = [span for span in shards if attributes(span)["elasticdl.epoch"] == 1]
    assert {span["parentSpanId"] for span in last} == {epochs["training epoch 1"]["spanId"]}
    assert int(whole["startTimeUnixNano"]) <= min(int(span["startTimeUnixNano"]) for span in shards)
    # Two workers at first, and two again after the kill.
    assert {attributes(span)["elasticdl.workers.after"] for span in received.named("resize")} == {2}
