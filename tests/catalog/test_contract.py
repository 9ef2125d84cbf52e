"""What every catalog does alike, whether its jobs run on this machine or on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from elasticdl.catalog.catalog import Catalog
from elasticdl.catalog.job import Job
from elasticdl.catalog.result import exit_code
from elasticdl.errors import ExitCode, UserError
from elasticdl.jobs.status import RunState
from tests.catalog.places import SUCCEEDS, WAITS, FakeCluster, Machine, Place
from tests.catalog.recorder import Recorder


@pytest.fixture(params=["local", "kubernetes"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Machine(tmp_path / "home")
    return FakeCluster(request.getfixturevalue("api"))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def inside(place: Place, recorder: Recorder, action: Callable[[Catalog], Awaitable[None]]) -> None:
    async def main() -> None:
        async with place.catalog(recorder) as catalog:
            await action(catalog)

    asyncio.run(main())


async def until_it_reports(job: Job) -> None:
    """A local master that has not started yet cannot be asked."""
    while True:
        try:
            if (await job.status()).has_report:
                return
        except UserError:
            pass
        await asyncio.sleep(0.01)


def test_submitted_job_runs_to_its_end_and_is_listed(place: Place, recorder: Recorder) -> None:
    async def action(catalog: Catalog) -> None:
        job = await catalog.submit(place.spec(SUCCEEDS))
        assert not (await job.wait_until_started()).problem
        status = await job.wait()
        assert (status.job, status.state) == ("job", RunState.SUCCEEDED)
        assert exit_code(status) is ExitCode.SUCCESS
        assert recorder.started_jobs == ["job"]
        assert recorder.last is not None
        assert recorder.last.state is RunState.SUCCEEDED
        (summary,) = await catalog.list()
        assert (summary.job, summary.kind, summary.state) == ("job", "train", RunState.SUCCEEDED)
        assert summary.location == job.location
        assert not await job.is_running()
        assert (await job.status()).state is RunState.SUCCEEDED
        assert (await job.spec()).job_name == "job"

    inside(place, recorder, action)


def test_name_of_a_running_job_is_refused_and_the_job_stays(place: Place, recorder: Recorder) -> None:
    async def action(catalog: Catalog) -> None:
        job = await catalog.submit(place.spec(WAITS))
        await until_it_reports(job)
        with pytest.raises(UserError, match="The job name job is in use") as refused:
            await catalog.submit(place.spec(SUCCEEDS))
        assert "--replace" in refused.value.hint
        assert [job.job for job in await catalog.list()] == ["job"]
        assert await job.is_running()
        await job.stop("the test")

    inside(place, recorder, action)


def test_find_returns_the_job_or_none(place: Place, recorder: Recorder) -> None:
    async def action(catalog: Catalog) -> None:
        assert await catalog.find("job") is None
        await (await catalog.submit(place.spec(SUCCEEDS))).wait()
        found = await catalog.find("job")
        assert found is not None
        assert (await found.wait()).state is RunState.SUCCEEDED
        assert await catalog.find("other") is None

    inside(place, recorder, action)


def test_running_job_is_scaled_followed_and_stopped(place: Place, recorder: Recorder) -> None:
    async def action(catalog: Catalog) -> None:
        job = await catalog.submit(place.spec(WAITS))
        await until_it_reports(job)
        assert await job.is_running()
        await job.check_running()
        result = await job.scale(num_workers=2)
        assert result is not None
        assert result.message == "from 1 to 2 workers"
        with pytest.raises(UserError, match="at least 1"):
            await job.scale(num_workers=0)
        with pytest.raises(UserError, match="Job job is running"):
            await job.delete()
        await job.stop("the test")
        assert (await job.summary()).state is RunState.STOPPED
        assert exit_code(await job.wait()) is ExitCode.INTERRUPTED
        with pytest.raises(UserError, match="is not running: it has stopped"):
            await job.check_running()

    inside(place, recorder, action)


def test_logs_are_kept_until_the_job_is_deleted(place: Place, recorder: Recorder) -> None:
    async def action(catalog: Catalog) -> None:
        job = await catalog.submit(place.spec(SUCCEEDS))
        await job.wait()
        names = await job.log_names()
        assert "master" in names
        node = "worker-0" if "worker-0" in names else "master"
        lines = [line.text async for line in job.logs(node, follow=True)]
        assert "hello" in lines
        await job.delete()
        assert await catalog.find("job") is None
        assert await catalog.list() == ()

    inside(place, recorder, action)


def test_finished_job_cannot_be_resumed(place: Place, recorder: Recorder) -> None:
    async def action(catalog: Catalog) -> None:
        job = await catalog.submit(place.spec(SUCCEEDS))
        await job.wait()
        with pytest.raises(UserError, match="Job job is over"):
            await job.resume()
        assert not job.resume_hint((await job.summary()).state)

    inside(place, recorder, action)
