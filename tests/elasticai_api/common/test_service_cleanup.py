"""A discarded service sends its pending reports, and leaves no thread and no connection behind."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

from elasticai_api.common.data_shard_service import build_data_shard_service


def test_a_service_that_is_forgotten(job: Any) -> None:
    service = build_data_shard_service(batch_size=4, dataset_size=50, dataset_name="d")
    service.fetch_shard()
    service.report_batch_done()
    service.report_batch_done()
    gone = weakref.ref(service)
    del service
    gc.collect()
    assert gone() is None
    assert job.done("d") == 8
    for thread in threading.enumerate():
        if thread.name == "elasticai reports":
            thread.join()


def test_service_closed_twice_keeps_its_reports(job: Any) -> None:
    service = build_data_shard_service(batch_size=4, dataset_size=50, dataset_name="d")
    service.fetch_shard()
    service.report_batch_done()
    service.close()
    service.close()
    assert job.done("d") == 4
