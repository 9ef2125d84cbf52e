"""A job's status as Prometheus reads it: every figure once, with labels, in the right form."""

from __future__ import annotations

import re
from dataclasses import replace

from elasticdl.dashboard.job_metrics import job_metrics
from elasticdl.jobs.status import JobStatus

SAMPLE = re.compile(
    r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (NaN|[+-]Inf|-?[0-9.e+-]+)'  # name, labels, number
)
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], str]:
    """What the text says, as strictly as Prometheus takes it."""
    assert text.endswith("\n")
    types: dict[str, str] = {}
    found: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert line.split()[2] not in types, f"{line}: a family is in one piece"
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
            family = name
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        name = match[1]
        assert name == family or (types[family] == "summary" and name in (f"{family}_sum", f"{family}_count"))
        assert (types[family] == "counter") == name.endswith("_total")
        labels = tuple(sorted(LABEL.findall(match[2])))
        assert (name, labels) not in found, f"{line} comes twice"
        found[name, labels] = match[3]
    return found


def values(status: JobStatus) -> dict[str, str]:
    """Without the label of the job, which all of them have."""
    short = {}
    for (name, labels), value in read(job_metrics(status)).items():
        assert ("job", "clicks") in labels
        rest = ",".join(f"{label}={said}" for label, said in labels if label != "job")
        short[f"{name}{{{rest}}}"] = value
    return short


def test_progress_metrics_have_values_of_status(status: JobStatus) -> None:
    found = values(status)
    assert found["elasticdl_job_info{kind=train,phase=training,state=running}"] == "1.0"
    assert found["elasticdl_samples_done{}"] == "1500.0"
    assert found["elasticdl_samples_per_second{}"] == "120.5"
    assert found["elasticdl_loss{}"] == "0.25"
    assert found["elasticdl_evaluation{metric=auc}"] == "0.75"
    assert found["elasticdl_evaluation{metric=loss}"] == "NaN"
    assert found["elasticdl_evaluation_step{}"] == "20.0"


def test_node_metrics_count_by_role_and_state(status: JobStatus) -> None:
    found = values(status)
    assert found["elasticdl_nodes{role=worker,state=running}"] == "2.0"
    assert found["elasticdl_nodes{role=worker,state=failed}"] == "1.0"
    assert found["elasticdl_nodes_desired{role=ps}"] == "1.0"


def test_server_metrics_have_values_of_status(status: JobStatus) -> None:
    found = values(status)
    assert found["elasticdl_server_rows{server=ps-0}"] == "1000.0"
    assert found["elasticdl_server_hit_ratio{server=ps-0}"] == "0.875"
    assert found["elasticdl_server_staleness_max{server=ps-0}"] == "4.0"
    assert found["elasticdl_server_pushes_not_finite_total{server=ps-0}"] == "2.0"
    assert found["elasticdl_server_call_seconds{call=push,quantile=0.95,server=ps-0}"] == "0.002"
    assert found["elasticdl_server_call_seconds_sum{call=push,server=ps-0}"] == "0.5"
    assert found["elasticdl_server_call_seconds_count{call=pull_rows,server=ps-0}"] == "20.0"
    # What is not known is not said.
    assert "elasticdl_server_call_seconds{call=push,quantile=0.99,server=ps-0}" not in found


def test_rates_that_are_not_known_yet_are_not_said(status: JobStatus) -> None:
    server = replace(
        status.servers[0],
        rows_pulled_per_second=None,
        rows_pushed_per_second=None,
        calls={name: replace(took, per_second=None) for name, took in status.servers[0].calls.items()},
    )
    text = job_metrics(replace(status, servers=(server,)))
    assert "elasticdl_server_rows{" in text
    assert "elasticdl_server_calls_per_second" not in text
    assert "elasticdl_server_rows_pulled_per_second" not in text


def test_table_metrics_escape_labels(status: JobStatus) -> None:
    found = values(status)
    table = 'table=a \\"quoted\\"\\\\name'
    assert found[f"elasticdl_table_bytes{{server=ps-0,{table}}}"] == "63600.0"
    assert found[f"elasticdl_table_ids_pulled_total{{server=ps-0,{table}}}"] == "1e+15"
    assert found[f"elasticdl_table_hot_id_share{{id=-7,server=ps-0,{table}}}"] == "0.5"
    assert not any("table_hit_ratio" in name for name in found)


def test_a_job_that_has_not_begun() -> None:
    text = job_metrics(JobStatus(job="clicks"))
    assert read(text) == {
        (
            "elasticdl_job_info",
            (("job", "clicks"), ("kind", ""), ("phase", ""), ("state", "starting")),
        ): "1.0"
    }


def test_a_job_without_servers_loss_or_evaluation(status: JobStatus) -> None:
    found = values(replace(status, servers=(), loss=None, evaluations=()))
    assert not any("server" in name or "loss" in name or "evaluation" in name for name in found)
