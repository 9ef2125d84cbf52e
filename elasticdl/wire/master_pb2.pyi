from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinRequest(_message.Message):
    __slots__ = ("node", "role", "incarnation", "address", "lineage", "journal")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    node: str
    role: str
    incarnation: str
    address: str
    lineage: str
    journal: int
    def __init__(self, node: _Optional[str] = ..., role: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., lineage: _Optional[str] = ..., journal: _Optional[int] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("job_spec", "job_dir", "lineage")
    JOB_SPEC_FIELD_NUMBER: _ClassVar[int]
    JOB_DIR_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    job_spec: str
    job_dir: str
    lineage: str
    def __init__(self, job_spec: _Optional[str] = ..., job_dir: _Optional[str] = ..., lineage: _Optional[str] = ...) -> None: ...

class ToldShard(_message.Message):
    __slots__ = ("lease_id", "dataset", "epoch", "start", "position", "end", "batches", "atomic", "held", "applied_buckets")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    APPLIED_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    dataset: str
    epoch: int
    start: int
    position: int
    end: int
    batches: int
    atomic: bool
    held: bool
    applied_buckets: bytes
    def __init__(self, lease_id: _Optional[int] = ..., dataset: _Optional[str] = ..., epoch: _Optional[int] = ..., start: _Optional[int] = ..., position: _Optional[int] = ..., end: _Optional[int] = ..., batches: _Optional[int] = ..., atomic: bool = ..., held: bool = ..., applied_buckets: _Optional[bytes] = ...) -> None: ...

class TellRequest(_message.Message):
    __slots__ = ("node", "generation", "seen_generation", "barrier", "sizes", "epochs_ended", "shards")
    class SizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SEEN_GENERATION_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_ENDED_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    node: str
    generation: int
    seen_generation: int
    barrier: int
    sizes: _containers.ScalarMap[str, int]
    epochs_ended: _containers.RepeatedCompositeFieldContainer[EpochEnd]
    shards: _containers.RepeatedCompositeFieldContainer[ToldShard]
    def __init__(self, node: _Optional[str] = ..., generation: _Optional[int] = ..., seen_generation: _Optional[int] = ..., barrier: _Optional[int] = ..., sizes: _Optional[_Mapping[str, int]] = ..., epochs_ended: _Optional[_Iterable[_Union[EpochEnd, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[ToldShard, _Mapping]]] = ...) -> None: ...

class TellReply(_message.Message):
    __slots__ = ("lost_leases",)
    LOST_LEASES_FIELD_NUMBER: _ClassVar[int]
    lost_leases: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lost_leases: _Optional[_Iterable[int]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("node", "incarnation")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    node: str
    incarnation: str
    def __init__(self, node: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class Directive(_message.Message):
    __slots__ = ("generation", "ps_addresses", "restore_from", "barrier_requested", "barrier_passed", "barrier_save_to", "evaluation", "evaluation_to_finish", "truncations", "drain", "epochs_ended", "task", "finished", "leader", "evaluation_step", "first_step", "ps_map", "ps_incarnations", "saved", "journal")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PS_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    BARRIER_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    BARRIER_PASSED_FIELD_NUMBER: _ClassVar[int]
    BARRIER_SAVE_TO_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_TO_FINISH_FIELD_NUMBER: _ClassVar[int]
    TRUNCATIONS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_ENDED_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_STEP_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    PS_MAP_FIELD_NUMBER: _ClassVar[int]
    PS_INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    generation: int
    ps_addresses: _containers.RepeatedScalarFieldContainer[str]
    restore_from: str
    barrier_requested: int
    barrier_passed: int
    barrier_save_to: str
    evaluation: int
    evaluation_to_finish: int
    truncations: _containers.RepeatedCompositeFieldContainer[Truncation]
    drain: bool
    epochs_ended: _containers.RepeatedCompositeFieldContainer[EpochEnd]
    task: str
    finished: bool
    leader: bool
    evaluation_step: int
    first_step: int
    ps_map: BucketMap
    ps_incarnations: _containers.RepeatedScalarFieldContainer[str]
    saved: bool
    journal: int
    def __init__(self, generation: _Optional[int] = ..., ps_addresses: _Optional[_Iterable[str]] = ..., restore_from: _Optional[str] = ..., barrier_requested: _Optional[int] = ..., barrier_passed: _Optional[int] = ..., barrier_save_to: _Optional[str] = ..., evaluation: _Optional[int] = ..., evaluation_to_finish: _Optional[int] = ..., truncations: _Optional[_Iterable[_Union[Truncation, _Mapping]]] = ..., drain: bool = ..., epochs_ended: _Optional[_Iterable[_Union[EpochEnd, _Mapping]]] = ..., task: _Optional[str] = ..., finished: bool = ..., leader: bool = ..., evaluation_step: _Optional[int] = ..., first_step: _Optional[int] = ..., ps_map: _Optional[_Union[BucketMap, _Mapping]] = ..., ps_incarnations: _Optional[_Iterable[str]] = ..., saved: bool = ..., journal: _Optional[int] = ...) -> None: ...

class BucketMap(_message.Message):
    __slots__ = ("version", "primary", "backup", "filling", "handover", "filling_since")
    class FillingEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class HandoverEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class FillingSinceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    FILLING_FIELD_NUMBER: _ClassVar[int]
    HANDOVER_FIELD_NUMBER: _ClassVar[int]
    FILLING_SINCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    primary: _containers.RepeatedScalarFieldContainer[int]
    backup: _containers.RepeatedScalarFieldContainer[int]
    filling: _containers.ScalarMap[int, int]
    handover: _containers.ScalarMap[int, int]
    filling_since: _containers.ScalarMap[int, int]
    def __init__(self, version: _Optional[int] = ..., primary: _Optional[_Iterable[int]] = ..., backup: _Optional[_Iterable[int]] = ..., filling: _Optional[_Mapping[int, int]] = ..., handover: _Optional[_Mapping[int, int]] = ..., filling_since: _Optional[_Mapping[int, int]] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("epoch", "metrics", "loss", "samples")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    metrics: _containers.ScalarMap[str, float]
    loss: float
    samples: int
    def __init__(self, epoch: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., loss: _Optional[float] = ..., samples: _Optional[int] = ...) -> None: ...

class Truncation(_message.Message):
    __slots__ = ("lease_id", "end")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    end: int
    def __init__(self, lease_id: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class AnnounceRequest(_message.Message):
    __slots__ = ("node", "dataset", "size")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    node: str
    dataset: str
    size: int
    def __init__(self, node: _Optional[str] = ..., dataset: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class AnnounceReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("node", "dataset", "max_shards", "request_id", "generation", "wait")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    MAX_SHARDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    node: str
    dataset: str
    max_shards: int
    request_id: int
    generation: int
    wait: bool
    def __init__(self, node: _Optional[str] = ..., dataset: _Optional[str] = ..., max_shards: _Optional[int] = ..., request_id: _Optional[int] = ..., generation: _Optional[int] = ..., wait: bool = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("lease_id", "epoch", "start", "end", "applied_buckets")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    APPLIED_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    epoch: int
    start: int
    end: int
    applied_buckets: bytes
    def __init__(self, lease_id: _Optional[int] = ..., epoch: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., applied_buckets: _Optional[bytes] = ...) -> None: ...

class LeaseReply(_message.Message):
    __slots__ = ("shards", "finished")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    finished: bool
    def __init__(self, shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., finished: bool = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("lease_id", "position", "batches", "atomic")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    position: int
    batches: int
    atomic: bool
    def __init__(self, lease_id: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[int] = ..., atomic: bool = ...) -> None: ...

class BadRange(_message.Message):
    __slots__ = ("dataset", "start", "end", "where", "reason")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    start: int
    end: int
    where: str
    reason: str
    def __init__(self, dataset: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., where: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("node", "generation", "progress", "bad_records", "loss_sum", "loss_batches", "stop_training", "report_id", "batch_seconds", "skipped_batches", "scalars")
    class ScalarsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    BAD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    LOSS_BATCHES_FIELD_NUMBER: _ClassVar[int]
    STOP_TRAINING_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BATCHES_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    node: str
    generation: int
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    bad_records: _containers.RepeatedCompositeFieldContainer[BadRange]
    loss_sum: float
    loss_batches: int
    stop_training: bool
    report_id: int
    batch_seconds: float
    skipped_batches: int
    scalars: _containers.ScalarMap[str, float]
    def __init__(self, node: _Optional[str] = ..., generation: _Optional[int] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ..., bad_records: _Optional[_Iterable[_Union[BadRange, _Mapping]]] = ..., loss_sum: _Optional[float] = ..., loss_batches: _Optional[int] = ..., stop_training: bool = ..., report_id: _Optional[int] = ..., batch_seconds: _Optional[float] = ..., skipped_batches: _Optional[int] = ..., scalars: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ReportReply(_message.Message):
    __slots__ = ("lost_leases",)
    LOST_LEASES_FIELD_NUMBER: _ClassVar[int]
    lost_leases: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lost_leases: _Optional[_Iterable[int]] = ...) -> None: ...

class TruncateRequest(_message.Message):
    __slots__ = ("node", "lease_id", "end")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    node: str
    lease_id: int
    end: int
    def __init__(self, node: _Optional[str] = ..., lease_id: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class TruncateReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReachBarrierRequest(_message.Message):
    __slots__ = ("node", "barrier", "error", "files")
    NODE_FIELD_NUMBER: _ClassVar[int]
    BARRIER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    node: str
    barrier: int
    error: str
    files: _containers.RepeatedCompositeFieldContainer[SavedFile]
    def __init__(self, node: _Optional[str] = ..., barrier: _Optional[int] = ..., error: _Optional[str] = ..., files: _Optional[_Iterable[_Union[SavedFile, _Mapping]]] = ...) -> None: ...

class SavedFile(_message.Message):
    __slots__ = ("name", "bytes", "crc32")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes: int
    crc32: int
    def __init__(self, name: _Optional[str] = ..., bytes: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class ReachBarrierReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("name", "dtype", "shape", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class MetricState(_message.Message):
    __slots__ = ("metric", "states")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    metric: str
    states: _containers.RepeatedCompositeFieldContainer[Tensor]
    def __init__(self, metric: _Optional[str] = ..., states: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ...) -> None: ...

class ReportEvaluationRequest(_message.Message):
    __slots__ = ("node", "evaluation", "lease_id", "states", "bad_records")
    NODE_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    BAD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    node: str
    evaluation: int
    lease_id: int
    states: _containers.RepeatedCompositeFieldContainer[MetricState]
    bad_records: _containers.RepeatedCompositeFieldContainer[BadRange]
    def __init__(self, node: _Optional[str] = ..., evaluation: _Optional[int] = ..., lease_id: _Optional[int] = ..., states: _Optional[_Iterable[_Union[MetricState, _Mapping]]] = ..., bad_records: _Optional[_Iterable[_Union[BadRange, _Mapping]]] = ...) -> None: ...

class ReportEvaluationReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinishEvaluationRequest(_message.Message):
    __slots__ = ("node", "evaluation", "metrics", "claim")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    node: str
    evaluation: int
    metrics: _containers.ScalarMap[str, float]
    claim: bool
    def __init__(self, node: _Optional[str] = ..., evaluation: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., claim: bool = ...) -> None: ...

class FinishEvaluationReply(_message.Message):
    __slots__ = ("states", "yours")
    STATES_FIELD_NUMBER: _ClassVar[int]
    YOURS_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[MetricState]
    yours: bool
    def __init__(self, states: _Optional[_Iterable[_Union[MetricState, _Mapping]]] = ..., yours: bool = ...) -> None: ...

class FinishTaskRequest(_message.Message):
    __slots__ = ("node", "task", "result", "error")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    node: str
    task: str
    result: str
    error: str
    def __init__(self, node: _Optional[str] = ..., task: _Optional[str] = ..., result: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class FinishTaskReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HistoryRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HistoryReply(_message.Message):
    __slots__ = ("epochs",)
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    epochs: _containers.RepeatedCompositeFieldContainer[EpochEnd]
    def __init__(self, epochs: _Optional[_Iterable[_Union[EpochEnd, _Mapping]]] = ...) -> None: ...

class RemarkRequest(_message.Message):
    __slots__ = ("node", "remarks")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REMARKS_FIELD_NUMBER: _ClassVar[int]
    node: str
    remarks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., remarks: _Optional[_Iterable[str]] = ...) -> None: ...

class RemarkReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FailRequest(_message.Message):
    __slots__ = ("node", "kind", "message", "traceback", "lease_id")
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    node: str
    kind: str
    message: str
    traceback: str
    lease_id: int
    def __init__(self, node: _Optional[str] = ..., kind: _Optional[str] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ..., lease_id: _Optional[int] = ...) -> None: ...

class FailReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("brief",)
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    brief: bool
    def __init__(self, brief: bool = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class ScaleRequest(_message.Message):
    __slots__ = ("num_workers", "num_ps", "victims")
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NUM_PS_FIELD_NUMBER: _ClassVar[int]
    VICTIMS_FIELD_NUMBER: _ClassVar[int]
    num_workers: int
    num_ps: int
    victims: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, num_workers: _Optional[int] = ..., num_ps: _Optional[int] = ..., victims: _Optional[_Iterable[str]] = ...) -> None: ...

class ScaleReply(_message.Message):
    __slots__ = ("message", "ignored_victims")
    class IgnoredVictimsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    IGNORED_VICTIMS_FIELD_NUMBER: _ClassVar[int]
    message: str
    ignored_victims: _containers.ScalarMap[str, str]
    def __init__(self, message: _Optional[str] = ..., ignored_victims: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
