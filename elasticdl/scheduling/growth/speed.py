"""Speed of a job against its size, placement and batch size: a fitted model, and the batch size that suits it best.

The model (n machines, r replicas, m samples per replica and step, k accumulation steps per update):

    T_compute(m)    = α_c + β_c·m
    T_sync(n, r)    = 0                          r = 1
                    = α_l + β_l·max(r − 2, 0)    one machine
                    = α_n + β_n·max(r − 2, 0)    several machines
    T_step(n, r, m) = (T_compute^γ + T_sync^γ)^(1/γ)        1 ≤ γ ≤ 10: 1 no overlap, 10 full overlap
    X               = B / (k·T_compute + T_step)            samples per second, B = r·m·(k + 1)
    E(B)            = (φ + 1) / (φ + s) with s = B/B₀       statistical efficiency, φ the noise scale var/sqr
    G               = max over (m, k) of X·E                goodput

Parameter servers at a fixed batch are the case E = 1 with T_sync = α_p + β_p·r/servers: the same line in r.

The parameters are fitted to the logarithm of measured step times by damped least squares (Levenberg–Marquardt),
many jobs at once in one NumPy batch. What a job has not shown is assumed to be free (no synchronisation cost):
optimism that makes it explore, bounded by twice the size it has run with.

Failure modes: unusable observations are dropped before the fit; a job without any has no model (None) and is planned
by fair shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.scheduling.demand import (
    BatchLimits,
    GradientNoise,
    JobDemand,
    Observation,
    usable_observations,
)

Array = NDArray[np.float64]

# Candidates for the total batch size, in geometric steps between the smallest and the largest.
_BATCH_STEPS = 24
_ITERATIONS = 30
# A time below this many seconds counts as zero.
_TINY_SECONDS = 1e-6
# Pull towards the starting point, in units of the relative error: decides only what the data leaves open.
_PRIOR_WEIGHT = 0.02
# Noise scale of a job that reports none: its batch size is fixed, which makes the value irrelevant.
_NO_NOISE = GradientNoise(square=1.0, variance=0.0)


@dataclass(frozen=True, kw_only=True)
class SpeedModel:
    """Fitted parameters; the formulas are in the module docstring.

    compute_fixed_seconds (α_c), compute_sample_seconds (β_c): T_compute = α_c + β_c·m
    local_sync_seconds (α_l), local_sync_replica_seconds (β_l): T_sync on one machine = α_l + β_l·max(r − 2, 0)
    network_sync_seconds (α_n), network_sync_replica_seconds (β_n): T_sync across machines = α_n + β_n·max(r − 2, 0)
    overlap (γ): T_step = (T_compute^γ + T_sync^γ)^(1/γ)
    """

    compute_fixed_seconds: float
    compute_sample_seconds: float
    local_sync_seconds: float
    local_sync_replica_seconds: float
    network_sync_seconds: float
    network_sync_replica_seconds: float
    overlap: float

    def compute_seconds(self, local_batch: Array) -> Array:
        return self.compute_fixed_seconds + self.compute_sample_seconds * local_batch

    def sync_seconds(self, machines: Array, replicas: Array) -> Array:
        more = np.maximum(replicas - 2.0, 0.0)
        local = self.local_sync_seconds + self.local_sync_replica_seconds * more
        network = self.network_sync_seconds + self.network_sync_replica_seconds * more
        return np.where(replicas <= 1, 0.0, np.where(machines <= 1, local, network))

    def step_seconds(self, machines: Array, replicas: Array, local_batch: Array) -> Array:
        compute = self.compute_seconds(local_batch)
        sync = self.sync_seconds(machines, replicas)
        larger = np.maximum(compute, sync)
        ratio = np.minimum(compute, sync) / np.maximum(larger, 1e-30)
        return np.asarray(larger * (1.0 + ratio**self.overlap) ** (1.0 / self.overlap))


@dataclass(frozen=True, kw_only=True)
class BatchChoice:
    """accumulation_steps: backward passes before the last one of an update; goodput: updates at B₀ per second."""

    local_batch: int
    accumulation_steps: int
    goodput: float


def efficiency(noise: GradientNoise, scale: Array) -> Array:
    """E = (φ + 1)/(φ + s): progress per sample at s times the initial batch size, relative to the initial one."""
    square = max(noise.square, 0.0) if np.isfinite(noise.square) else 0.0
    variance = max(noise.variance, 0.0) if np.isfinite(noise.variance) else 0.0
    total = square + variance
    if total <= 0:
        return np.asarray(1.0 / scale)
    # (var + sqr)/(var/s + sqr)/s, which is well defined for sqr = 0 too.
    return np.asarray(total / (variance + square * scale))


def goodputs(
    model: SpeedModel,
    limits: BatchLimits | None,
    noise: GradientNoise | None,
    machines: Array,
    replicas: Array,
) -> tuple[Array, Array, Array]:
    """Returns goodput, local batch and accumulation steps of the best batch size at each (machines, replicas).

    Without `limits` the batch per replica is one sample and the goodput is the throughput in samples per second.
    Goodput is zero where even the smallest local batch exceeds the largest batch size.
    """
    machines = np.asarray(machines, dtype=np.float64)
    replicas = np.asarray(replicas, dtype=np.float64)
    if limits is None:
        ones = np.ones_like(replicas)
        return replicas / model.step_seconds(machines, replicas, ones), ones, np.zeros_like(replicas)
    shape_m, shape_r = machines[..., None], replicas[..., None]
    lowest = np.maximum(limits.initial, limits.smallest_local * shape_r)
    highest = np.maximum(float(limits.largest), lowest)
    steps = np.linspace(0.0, 1.0, _BATCH_STEPS)
    batch = lowest * (highest / lowest) ** steps
    largest_local = float(limits.largest_local or limits.largest)
    passes = np.maximum(np.ceil(batch / shape_r / largest_local - 1e-9), 1.0)
    local = np.ceil(batch / shape_r / passes - 1e-9)
    total = local * shape_r * passes
    # Rounding up may pass the largest batch size.
    over = total > limits.largest
    local = np.where(over, np.maximum(local - 1.0, limits.smallest_local), local)
    total = local * shape_r * passes
    seconds = (passes - 1.0) * model.compute_seconds(local) + model.step_seconds(shape_m, shape_r, local)
    # A share of the initial batch below one (rounding) is no better than the initial batch.
    scale = np.maximum(total / limits.initial, 1.0)
    gain = scale * efficiency(noise or _NO_NOISE, scale)
    goodput = np.where(total <= limits.largest, gain / seconds, 0.0)
    best = np.argmax(goodput, axis=-1)[..., None]
    picked = [
        np.take_along_axis(np.broadcast_to(a, goodput.shape), best, -1)[..., 0] for a in (local, passes)
    ]
    return np.take_along_axis(goodput, best, -1)[..., 0], picked[0], picked[1] - 1.0


def choose_batch(
    model: SpeedModel, limits: BatchLimits, noise: GradientNoise | None, *, machines: int, replicas: int
) -> BatchChoice:
    """Returns the batch size with the highest goodput at one size and placement."""
    goodput, local, passes = goodputs(
        model, limits, noise, np.array([machines], dtype=float), np.array([replicas], dtype=float)
    )
    return BatchChoice(
        local_batch=int(local[0]), accumulation_steps=int(passes[0]), goodput=float(goodput[0])
    )


def fit_speed(observations: tuple[Observation, ...]) -> SpeedModel | None:
    """Returns the model fitted to one job's observations, None without usable ones."""
    return fit_speeds([observations])[0]


def fit_speeds(jobs: Sequence[tuple[Observation, ...]]) -> list[SpeedModel | None]:
    """Fits one model per job, all at once."""
    usable = [usable_observations(observations) for observations in jobs]
    rows = [index for index, observations in enumerate(usable) if observations]
    result: list[SpeedModel | None] = [None] * len(jobs)
    if not rows:
        return result
    data = _Observations([usable[index] for index in rows])
    parameters = _minimise(data)
    for index, row in zip(rows, _explain_unseen(data, parameters), strict=True):
        result[index] = SpeedModel(
            compute_fixed_seconds=float(row[0]),
            compute_sample_seconds=float(row[1]),
            local_sync_seconds=float(row[2]),
            local_sync_replica_seconds=float(row[3]),
            network_sync_seconds=float(row[4]),
            network_sync_replica_seconds=float(row[5]),
            overlap=float(row[6]),
        )
    return result


class _Observations:
    """Observations of several jobs as padded arrays; `weight` is zero in the padding."""

    def __init__(self, jobs: list[tuple[Observation, ...]]) -> None:
        width = max(len(observations) for observations in jobs)
        shape = (len(jobs), width)
        self.machines, self.replicas = np.ones(shape), np.ones(shape)
        self.batch, self.step, self.compute = np.ones(shape), np.ones(shape), np.ones(shape)
        self.weight, self.compute_weight = np.zeros(shape), np.zeros(shape)
        for row, observations in enumerate(jobs):
            count = len(observations)
            self.machines[row, :count] = [seen.machines for seen in observations]
            self.replicas[row, :count] = [seen.replicas for seen in observations]
            self.batch[row, :count] = [seen.local_batch for seen in observations]
            self.step[row, :count] = [seen.step_seconds for seen in observations]
            self.weight[row, :count] = 1.0
            for column, seen in enumerate(observations):
                # A single replica does not synchronise: its step is all compute.
                alone = seen.step_seconds if seen.replicas == 1 else None
                compute = seen.compute_seconds or alone
                if compute is not None:
                    self.compute[row, column] = compute
                    self.compute_weight[row, column] = 1.0
        self.local = (self.weight > 0) & (self.replicas > 1) & (self.machines == 1)
        self.network = (self.weight > 0) & (self.replicas > 1) & (self.machines > 1)
        self.more = np.maximum(self.replicas - 2.0, 0.0)


def _minimise(data: _Observations) -> Array:
    """Levenberg–Marquardt on θ = logarithms of the six times and the logit of γ; returns the times and γ."""
    jobs = len(data.step)
    weight = data.weight
    compute_known = np.where(data.compute_weight > 0, data.compute, data.step)
    mean_compute = _mean(compute_known, np.where(data.compute_weight > 0, 1.0, 0.05) * weight)
    mean_batch = _mean(data.batch, weight)
    sync = np.maximum(data.step - np.minimum(compute_known, data.step), 0.05 * data.step)
    start = np.full((jobs, 7), np.log(_TINY_SECONDS))
    start[:, 0] = np.log(mean_compute / 2)
    start[:, 1] = np.log(mean_compute / 2 / mean_batch)
    free = np.zeros((jobs, 7), dtype=bool)
    free[:, :2] = True
    for column, mask in ((2, data.local), (4, data.network)):
        seen = mask.any(axis=1)
        slope = (mask & (data.replicas > 2)).any(axis=1)
        start[:, column] = np.where(seen, np.log(_mean(sync, mask * 1.0) * 0.7), start[:, column])
        start[:, column + 1] = np.where(slope, start[:, column] - np.log(10.0), start[:, column + 1])
        free[:, column] = seen
        free[:, column + 1] = slope
    start[:, 6] = -1.0
    free[:, 6] = data.local.any(axis=1) | data.network.any(axis=1)
    theta, damping = start.copy(), np.full(jobs, 1e-2)
    prior = np.where(free, _PRIOR_WEIGHT, 0.0)
    error, jacobian = _residuals(data, theta)
    cost = (error**2).sum(1) + ((prior * (theta - start)) ** 2).sum(1)
    eye = np.eye(7)
    for _ in range(_ITERATIONS):
        slopes = jacobian * free[:, None, :]
        normal = np.einsum("jnp,jnq->jpq", slopes, slopes) + eye * (prior**2)[:, None, :]
        gradient = np.einsum("jnp,jn->jp", slopes, error) + prior**2 * (theta - start)
        diagonal = np.einsum("jpp->jp", normal)
        # A fixed parameter has a unit diagonal and no gradient, and stays.
        normal = normal + eye * np.where(free, damping[:, None] * diagonal + 1e-12, 1.0)[:, None, :]
        step = -np.linalg.solve(normal, gradient[..., None])[..., 0]
        trial = np.clip(theta + np.clip(step, -2.0, 2.0), -25.0, 15.0)
        trial[:, 6] = np.clip(trial[:, 6], -6.0, 6.0)
        trial_error, trial_jacobian = _residuals(data, trial)
        trial_cost = (trial_error**2).sum(1) + ((prior * (trial - start)) ** 2).sum(1)
        better = trial_cost < cost
        improvement = np.where(better, (cost - trial_cost) / np.maximum(cost, 1e-12), 0.0)
        theta = np.where(better[:, None], trial, theta)
        error = np.where(better[:, None], trial_error, error)
        jacobian = np.where(better[:, None, None], trial_jacobian, jacobian)
        cost = np.where(better, trial_cost, cost)
        damping = np.clip(np.where(better, damping / 4.0, damping * 6.0), 1e-8, 1e8)
        if not ((improvement > 1e-4) | (~better & (damping < 1e3))).any():
            break
    times = np.exp(theta[:, :6])
    overlap = 1.0 + 9.0 / (1.0 + np.exp(-theta[:, 6]))
    return np.concatenate([times, overlap[:, None]], axis=1)


def _residuals(data: _Observations, theta: Array) -> tuple[Array, Any]:
    """Returns log(model/measured) of step and compute times, and its derivative by θ."""
    times = np.exp(theta[:, :6])[:, :, None]
    sigmoid = 1.0 / (1.0 + np.exp(-theta[:, 6]))[:, None]
    overlap = 1.0 + 9.0 * sigmoid
    fixed, per_sample = times[:, 0], times[:, 1] * data.batch
    compute = fixed + per_sample
    local, local_more = times[:, 2] * data.local, times[:, 3] * data.more * data.local
    network, network_more = times[:, 4] * data.network, times[:, 5] * data.more * data.network
    sync = np.maximum(local + local_more + network + network_more, 1e-30)
    log_compute, log_sync = np.log(compute), np.log(sync)
    both = np.logaddexp(overlap * log_compute, overlap * log_sync)
    share_compute = np.exp(overlap * log_compute - both)
    share_sync = np.exp(overlap * log_sync - both)
    step_error = (both / overlap - np.log(data.step)) * data.weight
    compute_error = (log_compute - np.log(data.compute)) * data.compute_weight
    columns = [
        share_compute * fixed / compute,
        share_compute * per_sample / compute,
        share_sync * local / sync,
        share_sync * local_more / sync,
        share_sync * network / sync,
        share_sync * network_more / sync,
        ((share_compute * log_compute + share_sync * log_sync) / overlap - both / overlap**2)
        * (9.0 * sigmoid * (1.0 - sigmoid)),
    ]
    step_slopes = np.stack(columns, axis=2) * data.weight[:, :, None]
    zero = np.zeros_like(compute)
    compute_slopes = np.stack([fixed / compute, per_sample / compute, *([zero] * 5)], axis=2)
    compute_slopes *= data.compute_weight[:, :, None]
    return np.concatenate([step_error, compute_error], 1), np.concatenate([step_slopes, compute_slopes], 1)


def _explain_unseen(data: _Observations, parameters: Array) -> Array:
    """Fills in what a job has not shown.

    Nothing but single replicas: synchronisation is free. Only one machine: the network costs at least as much as
    the machine's own connection. Only several machines: one machine costs as much as the network.
    """
    result = parameters.copy()
    local, network = data.local.any(axis=1), data.network.any(axis=1)
    slope_local = (data.local & (data.replicas > 2)).any(axis=1)
    slope_network = (data.network & (data.replicas > 2)).any(axis=1)
    result[:, 2] = np.where(local, result[:, 2], 0.0)
    result[:, 4] = np.where(network, result[:, 4], 0.0)
    result[:, 3] = np.where(slope_local, result[:, 3], 0.0)
    result[:, 5] = np.where(slope_network, result[:, 5], 0.0)
    only_local, only_network = local & ~network, network & ~local
    result[:, 4] = np.where(only_local, 1.1 * result[:, 2], result[:, 4])
    result[:, 5] = np.where(slope_network, result[:, 5], 1.1 * result[:, 3])
    result[:, 2] = np.where(only_network, result[:, 4], result[:, 2])
    result[:, 3] = np.where(slope_local, result[:, 3], np.where(only_network, result[:, 5], 0.0))
    return result


def _mean(values: Array, weight: Array) -> Array:
    total = weight.sum(axis=1)
    mean = (values * weight).sum(axis=1) / np.maximum(total, 1e-12)
    return np.asarray(np.where(total > 0, np.maximum(mean, 1e-9), 1.0))


class SpeedCache:
    """Fitted models by job, refitted only when a job's observations change."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[tuple[Observation, ...], SpeedModel | None]] = {}

    def models(self, jobs: Sequence[JobDemand]) -> dict[str, SpeedModel | None]:
        stale = [job for job in jobs if self._of(job) is None]
        for job, model in zip(stale, fit_speeds([job.observations for job in stale]), strict=True):
            self._models[job.key] = (job.observations, model)
        kept = {job.key: self._models[job.key] for job in jobs}
        self._models = kept
        return {key: model for key, (_, model) in kept.items()}

    def _of(self, job: JobDemand) -> tuple[tuple[Observation, ...], SpeedModel | None] | None:
        held = self._models.get(job.key)
        if held is None or (held[0] is not job.observations and held[0] != job.observations):
            return None
        return held
