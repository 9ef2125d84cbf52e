"""Paddle: every sample once through loaders and `Model.fit`, and trainers that come and go without a loss."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.errors import NonFiniteError, ShardError
from elasticai_api.paddle.callbacks import ElasticReportCallback
from elasticai_api.paddle.dataset import ElasticBatchSampler, ElasticDataLoader, ElasticIterableDataset
from elasticai_api.paddle.fault_tolerance import FaultTolerantTrainer


class Numbers(paddle.io.Dataset):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return np.array([index], np.float32), np.array([2 * index], np.float32)


def _service(**more: Any) -> Any:
    return build_data_shard_service(
        **{"batch_size": 4, "num_epochs": 2, "dataset_size": 50, "num_minibatches_per_shard": 3, **more}
    )


def _left(service: Any) -> int:
    document = json.loads(service.get_shard_checkpoint())
    return sum(end - start for start, end in document["todo"] + document["doing"])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_yields_every_sample_of_every_epoch(num_workers: int) -> None:
    service = _service(shuffle=True)
    seen: list[float] = []
    for numbers, doubles in ElasticDataLoader(Numbers(), service, num_workers=num_workers):
        np.testing.assert_array_equal(2 * numbers.numpy(), doubles.numpy())
        seen += numbers.numpy().reshape(-1).tolist()
    assert Counter(seen) == Counter([float(number) for number in range(50)] * 2)
    assert _left(service) == 0


def test_a_batch_is_reported_when_the_next_is_asked_for() -> None:
    service = _service(num_epochs=1)
    done = 0
    for numbers, _ in ElasticDataLoader(Numbers(), service):
        assert _left(service) == 50 - done
        done += len(numbers)
    assert done == 50


def test_loader_rejects_settings_of_the_service() -> None:
    with pytest.raises(ShardError, match="batch_size, shuffle: the service decides"):
        ElasticDataLoader(Numbers(), _service(), batch_size=3, shuffle=True)
    assert [len(batch) for batch in ElasticBatchSampler(_service(num_epochs=1))] == [4] * 12 + [2]


def test_model_fit_reports_its_batches() -> None:
    service = _service()
    network = paddle.nn.Linear(1, 1)
    model = paddle.Model(network)
    model.prepare(paddle.optimizer.SGD(1e-4, network.parameters()), paddle.nn.MSELoss())
    loader = paddle.io.DataLoader(ElasticIterableDataset(Numbers(), service), batch_size=4)
    model.fit(loader, epochs=1, verbose=0, callbacks=[ElasticReportCallback(service)])
    assert _left(service) == 0
    assert service.get_current_epoch() == 2


# -- trainers that come and go -------------------------------------------------------------------------------


class Job:
    """A model that sums up what it is trained on: a sample's gradient is minus its number, and the rate is 1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service = _service(num_epochs=1)

    def trainer(self) -> tuple[FaultTolerantTrainer, Any, Any]:
        model = paddle.nn.Linear(1, 1, bias_attr=False)
        model.weight.set_value(np.zeros((1, 1), np.float32))
        optimizer = paddle.optimizer.SGD(1.0, model.parameters())
        return FaultTolerantTrainer(model, optimizer, self.service, self.folder), model, optimizer

    @staticmethod
    def train(shard: Any, model: Any, optimizer: Any) -> None:
        for number in range(shard.start, shard.end):
            (-number * model.weight).sum().backward()
            optimizer.step()
            optimizer.clear_grad()


@pytest.fixture
def started(tmp_path: Path) -> Job:
    return Job(tmp_path / "model")


TOTAL = float(sum(range(50)))


def test_one_trainer_after_the_other_goes_on(started: Job) -> None:
    first, model, optimizer = started.trainer()
    assert not first.is_restored
    given = first.shards()
    for _ in range(2):
        started.train(next(given), model, optimizer)
    # Asking for the third has made the second last; the third is never trained on, and given back.
    next(given)
    given.close()
    started.service.report_all_task_error("killed")
    second, model, optimizer = started.trainer()
    assert second.is_restored
    assert second.version == 2
    for shard in second.shards():
        started.train(shard, model, optimizer)
    assert float(model.weight) == TOTAL
    assert _left(started.service) == 0


def test_trainers_at_the_same_time_add_up(started: Job) -> None:
    trainers = [started.trainer() for _ in range(3)]
    running = [(trainer.shards(), model, optimizer) for trainer, model, optimizer in trainers]
    while running:
        # All of them train before any of them goes on: each has missed what the others have added.
        for each in list(running):
            given, model, optimizer = each
            shard = next(given, None)
            if shard is None:
                running.remove(each)
            else:
                started.train(shard, model, optimizer)
    _, model, _ = started.trainer()
    assert float(model.weight) == TOTAL


def test_infinities_in_buffers_are_merged_without_nan(tmp_path: Path) -> None:
    job, infinity = Job(tmp_path / "model"), float("inf")
    trainers = []
    for _ in range(2):
        model = paddle.nn.Linear(1, 1, bias_attr=False)
        model.weight.set_value(np.zeros((1, 1), np.float32))
        model.register_buffer("mask", paddle.to_tensor([0.0, -infinity, -infinity, 0.0, infinity]))
        optimizer = paddle.optimizer.SGD(1.0, model.parameters())
        trainers.append((FaultTolerantTrainer(model, optimizer, job.service, job.folder), model, optimizer))
    (first, model, optimizer), (second, other, its_optimizer) = trainers
    running, others = first.shards(), second.shards()
    job.train(next(running), model, optimizer)
    job.train(next(others), other, its_optimizer)
    # The second trainer unmasks one place and masks another.
    other.mask.set_value(np.array([0.0, -infinity, 0.0, -infinity, infinity], np.float32))
    next(running)
    next(others)
    state = paddle.load(str(job.folder / "state.pdstate"))["model"]
    assert float(state["weight"]) == float(sum(range(24)))
    np.testing.assert_array_equal(state["mask"].numpy(), [0.0, -infinity, 0.0, -infinity, infinity])


def test_a_shard_that_was_added_and_not_reported_is_not_trained_again(
    started: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, model, optimizer = started.trainer()

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        given = first.shards()
        started.train(next(given), model, optimizer)
        patched.setattr(started.service, "report_batch_done", die)
        with pytest.raises(KeyboardInterrupt):
            next(given)
    started.service.report_all_task_error("killed")
    second, model, optimizer = started.trainer()
    assert second.version == 1
    trained = 0
    for shard in second.shards():
        trained += shard.end - shard.start
        started.train(shard, model, optimizer)
    assert trained == 38
    assert float(model.weight) == TOTAL
    assert _left(started.service) == 0
    unreported = paddle.load(str(started.folder / "state.pdstate"))["unreported"]
    assert [each[2:] for each in unreported] == [[1, 48, 50]]
    assert not list(started.folder.glob("*.new"))


def test_another_job_on_the_same_state_trains_every_sample(started: Job) -> None:
    for _ in range(2):
        trainer, model, optimizer = started.trainer()
        for shard in trainer.shards():
            started.train(shard, model, optimizer)
        # Its shards have the numbers and the samples of those before.
        started.service = _service(num_epochs=1)
    assert float(model.weight) == 2 * TOTAL


def test_two_jobs_at_the_same_time_on_one_state_add_up(started: Job) -> None:
    first, model, optimizer = started.trainer()
    started.service = _service(num_epochs=1)
    second, other, its_optimizer = started.trainer()
    running = first.shards()
    for shard in second.shards():
        started.train(shard, other, its_optimizer)
        if (own := next(running, None)) is not None:
            started.train(own, model, optimizer)
    assert next(running, None) is None
    _, model, _ = started.trainer()
    assert float(model.weight) == 2 * TOTAL


def test_state_written_by_another_while_the_lock_was_lost_is_kept(
    started: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, model, optimizer = started.trainer()
    second, other, its_optimizer = started.trainer()
    running, others = first.shards(), second.shards()
    started.train(next(running), model, optimizer)
    started.train(next(others), other, its_optimizer)
    save = paddle.save
    saved = 0

    def save_late(*arguments: Any) -> None:
        nonlocal saved
        saved += 1
        if saved == 1:
            # Its machine is cut off for so long that the file server gives its lock to another trainer.
            monkeypatch.setattr("elasticai_api.paddle.fault_tolerance.fcntl.flock", lambda *_: None)
            started.train(next(others), other, its_optimizer)
        save(*arguments)

    monkeypatch.setattr(paddle, "save", save_late)
    next(running)
    _, model, _ = started.trainer()
    assert float(model.weight) == float(sum(range(24)))


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_model_that_is_not_finite_is_not_added_to_the_state(started: Job, number: float) -> None:
    first, model, optimizer = started.trainer()
    given = first.shards()
    started.train(next(given), model, optimizer)
    next(given)
    model.weight.set_value(np.full((1, 1), number, np.float32))
    with pytest.raises(NonFiniteError, match="weight is not finite"):
        next(given)
    started.service.report_all_task_error("spoiled")
    second, model, optimizer = started.trainer()
    assert second.version == 1
    for shard in second.shards():
        started.train(shard, model, optimizer)
    assert float(model.weight) == TOTAL


def test_the_same_samples_in_the_next_epoch_are_trained_again(tmp_path: Path) -> None:
    started = Job(tmp_path / "model")
    started.service = _service(num_epochs=3)
    trainer, model, optimizer = started.trainer()
    for shard in trainer.shards():
        started.train(shard, model, optimizer)
    assert float(model.weight) == 3 * TOTAL


def test_a_state_of_another_model_is_refused(started: Job) -> None:
    trainer, model, optimizer = started.trainer()
    given = trainer.shards()
    started.train(next(given), model, optimizer)
    next(given)
    other = paddle.nn.Linear(2, 1)
    with pytest.raises(ShardError, match="is of another model: bias, weight differ"):
        FaultTolerantTrainer(
            other, paddle.optimizer.SGD(1.0, other.parameters()), started.service, started.folder
        )


@pytest.mark.parametrize("optimizer", [paddle.optimizer.Adam, paddle.optimizer.Momentum])
def test_one_trainer_restarted_learns_what_an_undisturbed_one_learns(
    optimizer: Callable[..., Any], tmp_path: Path
) -> None:
    def attempt(service: Any, folder: Path, shards: int) -> Any:
        """Dies in the middle of the last of so many shards."""
        paddle.seed(0)
        model = paddle.nn.Linear(1, 1)
        made = optimizer(learning_rate=0.01, parameters=model.parameters())
        given = FaultTolerantTrainer(model, made, service, folder).shards()
        for count, shard in enumerate(given, 1):
            numbers = paddle.arange(shard.start, shard.end, dtype="float32").unsqueeze(1) / 50
            ((model(numbers) - 2 * numbers) ** 2).mean().backward()
            made.step()
            made.clear_grad()
            if count == shards:
                given.close()
                service.report_all_task_error("killed")
                break
        return [value.numpy() for value in model.state_dict().values()]

    def run(folder: Path, *attempts: int) -> Any:
        service, found = _service(num_epochs=2), None
        for shards in attempts:
            # As in a process of its own: Paddle counts layers, and saves optimizers by the names that come of it.
            with paddle.utils.unique_name.guard():
                found = attempt(service, folder, shards)
        return found

    undisturbed = run(tmp_path / "one", 0)
    for found, expected in zip(run(tmp_path / "two", 3, 2, 0), undisturbed, strict=True):
        np.testing.assert_array_equal(found, expected)
