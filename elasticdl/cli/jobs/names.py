"""Names of jobs and nodes for the completion of the shell.

A shell waits for the answer while a person types, so only this machine is asked, and a cluster only where a
namespace is named on the line. What cannot be read is not proposed; a completion never fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Complete = Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]
# A cluster that takes longer is not worth waiting for.
_CLUSTER_SECONDS = 2.0


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """All jobs, the newest first, less those that are on the line already."""
    given = ctx.params.get(param.name or "")
    taken = set(given) if isinstance(given, tuple) else set()
    return _items((name for name in _jobs(ctx) if name not in taken), incomplete)


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nodes of the job on the line that have a log."""
    return _items(_answer(ctx, _log_names), incomplete)


def complete_running_nodes(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Nodes of the job on the line that run."""
    return _items(_answer(ctx, _running_nodes), incomplete)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _jobs(ctx: click.Context) -> list[str]:
    if ctx.params.get("namespace"):
        return _answer(ctx, _cluster_jobs)
    from elasticdl.jobs.job_store import JobStore

    return [folder.name for folder in reversed(JobStore().list())]


async def _cluster_jobs(lookup: Any, job: str) -> list[str]:
    return [found.job for found in (await lookup.list()).jobs]


async def _log_names(lookup: Any, job: str) -> list[str]:
    return list(await (await lookup.find(job)).log_names())


async def _running_nodes(lookup: Any, job: str) -> list[str]:
    status = await (await lookup.find(job)).status()
    return [node.name for node in status.nodes if node.phase == "running"]


def _answer(ctx: click.Context, ask: Callable[[Any, str], Any]) -> list[str]:
    from elasticdl.catalog.lookup import JobLookup

    async def main() -> list[str]:
        async with JobLookup(namespace=ctx.params.get("namespace") or "") as lookup:
            found: list[str] = await asyncio.wait_for(
                ask(lookup, ctx.params.get("job") or ""), _CLUSTER_SECONDS
            )
            return found

    # The command itself reports errors.
    with contextlib.suppress(Exception):
        return asyncio.run(main())
    return []
