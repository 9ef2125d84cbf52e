"""The metrics of a job: every number of its JobStatus, under names that stay.

Local jobs and jobs on a cluster have the same metrics. Those of a job that is over are its last ones.
"""

from __future__ import annotations

from collections import Counter

from elasticdl.dashboard.prometheus_text import Exposition
from elasticdl.jobs.status import JobStatus, ServerReport, TableReport


def job_metrics(status: JobStatus) -> str:
    """Returns the metrics in Prometheus' text format."""
    return exposition_of(status).text()


def exposition_of(status: JobStatus, **labels: str) -> Exposition:
    """`labels`: beside the name of the job."""
    out = Exposition(job=status.job, **labels)
    out.gauge(
        "elasticdl_job_info",
        "Always 1; kind, phase and state of the job are in the labels.",
        1,
        kind=status.kind,
        state=status.state.value,
        phase=status.phase,
    )
    # Before the first report of the master nothing else is known.
    if status.has_report:
        _add_progress(out, status)
        _add_nodes(out, status)
        for server in status.servers:
            _add_server(out, server)
    return out


def _add_progress(out: Exposition, status: JobStatus) -> None:
    out.gauge("elasticdl_samples_done", "Samples done in all epochs.", status.samples_done)
    out.gauge("elasticdl_samples_desired", "Samples that all epochs have.", status.samples_desired)
    out.gauge(
        "elasticdl_samples_per_second", "Samples per second, in the last seconds.", status.samples_per_second
    )
    out.gauge("elasticdl_epoch", "Finished epochs.", status.epoch)
    out.gauge("elasticdl_epochs_desired", "Epochs that the job has.", status.epochs)
    out.gauge("elasticdl_step", "Batches of all workers.", status.step)
    out.gauge("elasticdl_loss", "The mean loss in the newest report of a worker.", status.loss)
    out.gauge(
        "elasticdl_started_seconds",
        "Start time of the job's master, in seconds since 1970.",
        status.start_time,
    )
    out.gauge("elasticdl_generation", "Number of restores of the model.", status.model_generation)
    out.gauge(
        "elasticdl_batches_without_effect",
        "Batches skipped for non-finite gradients.",
        status.non_finite_batches,
    )
    newest = status.latest_evaluation
    if newest is not None:
        out.gauge("elasticdl_evaluation_step", "Step of the newest evaluation.", newest.step)
        for name, value in newest.metrics.items():
            out.gauge("elasticdl_evaluation", "Values of the newest evaluation.", value, metric=name)


def _add_nodes(out: Exposition, status: JobStatus) -> None:
    nodes = Counter((node.role, node.phase) for node in status.nodes)
    for (role, phase), count in sorted(nodes.items()):
        out.gauge("elasticdl_nodes", "Nodes that the job has or had.", count, role=role, state=phase)
    for role, wanted in status.desired_nodes.items():
        out.gauge("elasticdl_nodes_desired", "Nodes that the job should have.", wanted, role=role)


def _add_server(out: Exposition, server: ServerReport) -> None:
    name = server.name
    gauges = {
        "version": ("Updates of the model.", server.version),
        "rows": ("Rows of tables in memory, replicas included.", server.rows),
        "bytes": ("Parameters, rows, their slots and indexes.", server.size_bytes),
        "dense_bytes": ("Dense parameters and their slots.", server.dense_bytes),
        "rows_pulled_per_second": ("In the last seconds.", server.rows_pulled_per_second),
        "rows_pushed_per_second": ("In the last seconds.", server.rows_pushed_per_second),
        "hit_ratio": ("Share of the pulled ids that had a row, in the last seconds.", server.hit_ratio),
        "staleness_mean": (
            "Versions between pull and push, in the last seconds.",
            server.staleness.mean,
        ),
        "staleness_max": ("Versions between pull and push, ever.", server.staleness.max),
    }
    for metric, (help_of, value) in gauges.items():
        out.gauge(f"elasticdl_server_{metric}", help_of, value, server=name)
    for call, took in server.calls.items():
        out.summary(
            "elasticdl_server_call_seconds",
            "Duration of calls on the server; quantiles of the last seconds.",
            quantiles={"0.5": took.p50_seconds, "0.95": took.p95_seconds, "0.99": took.p99_seconds},
            sum=took.total_seconds,
            count=took.count,
            server=name,
            call=call,
        )
        out.gauge(
            "elasticdl_server_calls_per_second",
            "Calls answered in the last seconds.",
            took.per_second,
            server=name,
            call=call,
        )
    out.counter(
        "elasticdl_server_pushes_not_finite_total",
        "Pushes rejected for NaN or infinite gradients.",
        server.non_finite_pushes,
        server=name,
    )
    for table in server.tables:
        _add_table(out, name, table)


def _add_table(out: Exposition, server: str, table: TableReport) -> None:
    name = table.name
    gauges = {
        "rows": ("Rows in memory, replicas included.", table.rows),
        "bytes": ("Rows, their slots and the index.", table.size_bytes),
        "hit_ratio": ("Share of the pulled ids that had a row, in the last seconds.", table.hit_ratio),
    }
    for metric, (help_of, value) in gauges.items():
        out.gauge(f"elasticdl_table_{metric}", help_of, value, server=server, table=name)
    counters = {
        "ids_pulled": ("Pulled ids.", table.ids_pulled),
        "ids_found": ("Pulled ids that had a row.", table.ids_found),
        "ids_pushed": ("Ids whose gradients were applied.", table.ids_pushed),
        "rows_refused": ("Rows refused for lack of memory.", table.rows_rejected),
    }
    for metric, (help_of, value) in counters.items():
        out.counter(f"elasticdl_table_{metric}_total", help_of, value, server=server, table=name)
    for hot in table.hot_ids:
        out.gauge(
            "elasticdl_table_hot_id_share",
            "Share of the pulls that contain the id, for the hottest ids.",
            hot.share,
            server=server,
            table=name,
            id=str(hot.id),
        )
