"""The throughput model: fit, synchronisation, batch size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elasticdl.scheduling.demand import BatchLimits, GradientNoise, Observation, usable_observations
from elasticdl.scheduling.growth.speed import (
    SpeedModel,
    choose_batch,
    efficiency,
    fit_speed,
    fit_speeds,
    goodputs,
)

TRUTH = SpeedModel(
    compute_fixed_seconds=0.05,
    compute_sample_seconds=0.002,
    local_sync_seconds=0.03,
    local_sync_replica_seconds=0.002,
    network_sync_seconds=0.12,
    network_sync_replica_seconds=0.004,
    overlap=1.8,
)


def _seen(machines: int, replicas: int, batch: int, model: SpeedModel = TRUTH) -> Observation:
    step = float(model.step_seconds(np.array(machines), np.array(float(replicas)), np.array(float(batch))))
    compute = float(model.compute_seconds(np.array(float(batch))))
    return Observation(
        machines=machines, replicas=replicas, local_batch=batch, step_seconds=step, compute_seconds=compute
    )


def _all() -> tuple[Observation, ...]:
    places = ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16))
    return tuple(_seen(n, r, m) for n, r in places for m in (16, 64, 128))


def test_fit_predicts_sizes_that_were_not_measured() -> None:
    model = fit_speed(_all())
    assert model is not None
    for machines, replicas, batch in ((1, 3, 32), (3, 12, 100), (8, 32, 64)):
        expected = _seen(machines, replicas, batch).step_seconds
        got = float(model.step_seconds(np.array(machines), np.array(float(replicas)), np.array(float(batch))))
        assert got == pytest.approx(expected, rel=0.05)


def test_fit_of_step_times_alone_predicts_step_times() -> None:
    steps = tuple(
        Observation(
            machines=s.machines, replicas=s.replicas, local_batch=s.local_batch, step_seconds=s.step_seconds
        )
        for s in _all()
    )
    model = fit_speed(steps)
    assert model is not None
    got = model.step_seconds(np.array(3), np.array(12.0), np.array(64.0))
    assert float(got) == pytest.approx(_seen(3, 12, 64).step_seconds, rel=0.1)


def test_fit_does_not_depend_on_the_other_jobs_in_the_batch() -> None:
    alone = fit_speed(_all())
    together = fit_speeds([_all()[:3], _all(), ()])
    assert together[2] is None
    assert alone is not None
    assert together[1] is not None
    assert together[1].overlap == pytest.approx(alone.overlap, rel=1e-3)
    assert together[1].network_sync_seconds == pytest.approx(alone.network_sync_seconds, rel=1e-3)


def test_job_that_ran_alone_is_assumed_to_scale_perfectly() -> None:
    model = fit_speed(tuple(_seen(1, 1, m) for m in (16, 64)))
    assert model is not None
    assert float(model.sync_seconds(np.array(4), np.array(16.0))) == 0.0


def test_network_is_assumed_at_least_as_slow_as_one_machine() -> None:
    model = fit_speed(tuple(_seen(1, r, 64) for r in (1, 2, 4)))
    assert model is not None
    inside = float(model.sync_seconds(np.array(1), np.array(4.0)))
    across = float(model.sync_seconds(np.array(2), np.array(4.0)))
    assert across > inside > 0


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_unusable_observations_are_dropped(value: float) -> None:
    broken = Observation(machines=1, replicas=2, local_batch=8, step_seconds=value)
    assert usable_observations((broken, _seen(1, 1, 8))) == (_seen(1, 1, 8),)
    assert fit_speed((broken,)) is None


def test_contradictory_observations_become_their_mean() -> None:
    pair = tuple(Observation(machines=1, replicas=1, local_batch=8, step_seconds=s) for s in (1.0, 3.0))
    assert [seen.step_seconds for seen in usable_observations(pair)] == [2.0]


def test_efficiency_is_one_at_the_initial_batch_and_falls() -> None:
    values = efficiency(GradientNoise(square=1.0, variance=10.0), np.array([1.0, 2.0, 8.0]))
    assert values[0] == pytest.approx(1.0)
    assert values[1] == pytest.approx(11.0 / 12.0)
    assert values[2] < values[1]


def test_noisy_gradients_train_with_larger_batches() -> None:
    limits = BatchLimits(initial=64, largest=4096, smallest_local=8, largest_local=256)
    quiet = choose_batch(TRUTH, limits, GradientNoise(square=1.0, variance=0.1), machines=1, replicas=4)
    noisy = choose_batch(TRUTH, limits, GradientNoise(square=1.0, variance=1000.0), machines=1, replicas=4)
    batches = [c.local_batch * 4 * (c.accumulation_steps + 1) for c in (quiet, noisy)]
    assert batches[0] < batches[1] <= 4096
    assert all(c.local_batch <= 256 for c in (quiet, noisy))


def test_fixed_batch_is_kept_and_split_over_replicas() -> None:
    limits = BatchLimits(initial=512, largest=512, largest_local=64)
    choice = choose_batch(TRUTH, limits, None, machines=1, replicas=4)
    assert choice.local_batch * 4 * (choice.accumulation_steps + 1) == 512
    assert choice.local_batch <= 64


def test_size_whose_smallest_batch_exceeds_the_largest_has_no_goodput() -> None:
    limits = BatchLimits(initial=16, largest=32, smallest_local=8)
    goodput, _, _ = goodputs(TRUTH, limits, None, np.array([1.0, 2.0]), np.array([4.0, 8.0]))
    assert goodput[0] > 0
    assert goodput[1] == 0
