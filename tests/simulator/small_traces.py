"""A folder of measured programs in the published layout, small enough to compute by hand."""

from __future__ import annotations

from pathlib import Path

PLACEMENTS = "placement,local_bsz,step_time,sync_time\n"


def write_traces(folder: Path, *, jobs: str | None = None) -> Path:
    """Two programs, `fast` and `slow`, and one workload.

    A step takes 0.1 s + 0.01 s per sample (slow: ten times that), and 0.05 s more to synchronise per further machine.
    """
    for name, factor in (("fast", 1.0), ("slow", 10.0)):
        program = folder / name
        program.mkdir(parents=True)
        lines = []
        for placement in ("1", "2", "3", "4", "11", "12", "22", "44"):
            machines = len(placement)
            for local in (4, 8, 16):
                sync = 0.05 * (machines - 1) * factor
                lines.append(f"{placement},{local},{(0.1 + 0.01 * local) * factor + sync},{sync}\n")
        (program / "placements.csv").write_text(PLACEMENTS + "".join(lines))
        scalability = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
        for machines in (4, 8):
            for local in (4, 8, 16):
                sync = 0.05 * (machines - 1) * factor
                step = (0.1 + 0.01 * local) * factor + sync
                scalability += f"{machines},{4 * machines},{local},{step},{sync}\n"
        (program / "scalability.csv").write_text(scalability)
        for batch in (8, 32, 128):
            rows = "".join(
                f"{100.0 * epoch},{100 * epoch * 8 // batch + 1},0.5,1.0,{10.0 * epoch}\n"
                for epoch in (1, 2, 3)
            )
            (program / f"validation-{batch}.csv").write_text(
                "progress,iteration,metric,grad_sqr,grad_var\n" + rows
            )
    workloads = folder / "workloads"
    workloads.mkdir()
    header = "name,time,application,num_replicas,batch_size\n"
    lines_of_jobs = jobs if jobs is not None else "a,10,fast,2,32\nb,70,slow,4,128\nc,95,fast,1,8\n"
    (workloads / "small.csv").write_text(header + lines_of_jobs)
    return folder
