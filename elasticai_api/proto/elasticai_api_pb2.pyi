from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[TaskType]
    TRAINING: _ClassVar[TaskType]
    EVALUATION: _ClassVar[TaskType]
    PREDICTION: _ClassVar[TaskType]
    WAIT: _ClassVar[TaskType]
    TRAIN_END_CALLBACK: _ClassVar[TaskType]
NONE: TaskType
TRAINING: TaskType
EVALUATION: TaskType
PREDICTION: TaskType
WAIT: TaskType
TRAIN_END_CALLBACK: TaskType

class Shard(_message.Message):
    __slots__ = ("name", "start", "end", "indices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    start: int
    end: int
    indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., indices: _Optional[_Iterable[int]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "shard", "model_version", "type", "extended_config")
    class ExtendedConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_CONFIG_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    shard: Shard
    model_version: int
    type: TaskType
    extended_config: _containers.ScalarMap[str, str]
    def __init__(self, task_id: _Optional[int] = ..., shard: _Optional[_Union[Shard, _Mapping]] = ..., model_version: _Optional[int] = ..., type: _Optional[_Union[TaskType, str]] = ..., extended_config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("worker_id", "task_type", "dataset_name")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    worker_id: int
    task_type: TaskType
    dataset_name: str
    def __init__(self, worker_id: _Optional[int] = ..., task_type: _Optional[_Union[TaskType, str]] = ..., dataset_name: _Optional[str] = ...) -> None: ...

class ReportTaskResultRequest(_message.Message):
    __slots__ = ("task_id", "err_message", "exec_counters", "dataset_name")
    class ExecCountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ERR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXEC_COUNTERS_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    err_message: str
    exec_counters: _containers.ScalarMap[str, int]
    dataset_name: str
    def __init__(self, task_id: _Optional[int] = ..., err_message: _Optional[str] = ..., exec_counters: _Optional[_Mapping[str, int]] = ..., dataset_name: _Optional[str] = ...) -> None: ...

class ReportDatasetShardParamsRequest(_message.Message):
    __slots__ = ("batch_size", "num_epochs", "dataset_size", "shuffle", "shuffle_shards", "num_minibatches_per_shard", "dataset_name", "task_type", "remainder")
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    DATASET_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_SHARDS_FIELD_NUMBER: _ClassVar[int]
    NUM_MINIBATCHES_PER_SHARD_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_TYPE_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    batch_size: int
    num_epochs: int
    dataset_size: int
    shuffle: bool
    shuffle_shards: bool
    num_minibatches_per_shard: int
    dataset_name: str
    task_type: TaskType
    remainder: str
    def __init__(self, batch_size: _Optional[int] = ..., num_epochs: _Optional[int] = ..., dataset_size: _Optional[int] = ..., shuffle: bool = ..., shuffle_shards: bool = ..., num_minibatches_per_shard: _Optional[int] = ..., dataset_name: _Optional[str] = ..., task_type: _Optional[_Union[TaskType, str]] = ..., remainder: _Optional[str] = ...) -> None: ...

class GetDatasetTaskRequest(_message.Message):
    __slots__ = ("worker_id", "dataset_name", "worker_type")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    WORKER_TYPE_FIELD_NUMBER: _ClassVar[int]
    worker_id: int
    dataset_name: str
    worker_type: str
    def __init__(self, worker_id: _Optional[int] = ..., dataset_name: _Optional[str] = ..., worker_type: _Optional[str] = ...) -> None: ...

class ResetDatasetRequest(_message.Message):
    __slots__ = ("dataset_name",)
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    dataset_name: str
    def __init__(self, dataset_name: _Optional[str] = ...) -> None: ...

class ReportDatasetTaskResultRequest(_message.Message):
    __slots__ = ("task_id", "err_message", "exec_counters", "dataset_name")
    class ExecCountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ERR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXEC_COUNTERS_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    err_message: str
    exec_counters: _containers.ScalarMap[str, int]
    dataset_name: str
    def __init__(self, task_id: _Optional[int] = ..., err_message: _Optional[str] = ..., exec_counters: _Optional[_Mapping[str, int]] = ..., dataset_name: _Optional[str] = ...) -> None: ...

class GetDatasetEpochRequest(_message.Message):
    __slots__ = ("dataset_name",)
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    dataset_name: str
    def __init__(self, dataset_name: _Optional[str] = ...) -> None: ...

class GetDatasetEpochResponse(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class GetShardCheckpointRequest(_message.Message):
    __slots__ = ("dataset_name",)
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    dataset_name: str
    def __init__(self, dataset_name: _Optional[str] = ...) -> None: ...

class ShardCheckpoint(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: str
    def __init__(self, content: _Optional[str] = ...) -> None: ...

class ReportShardCheckpointResponse(_message.Message):
    __slots__ = ("success",)
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    def __init__(self, success: bool = ...) -> None: ...

class ReportUsedResourceRequest(_message.Message):
    __slots__ = ("memory", "cpu", "worker_id", "worker_type")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_TYPE_FIELD_NUMBER: _ClassVar[int]
    memory: int
    cpu: float
    worker_id: int
    worker_type: str
    def __init__(self, memory: _Optional[int] = ..., cpu: _Optional[float] = ..., worker_id: _Optional[int] = ..., worker_type: _Optional[str] = ...) -> None: ...

class TensorStats(_message.Message):
    __slots__ = ("variable_count", "total_variable_size", "max_variable_size", "kv_embedding_dims", "tensor_alloc_bytes")
    class TensorAllocBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VARIABLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_VARIABLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_VARIABLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    KV_EMBEDDING_DIMS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_ALLOC_BYTES_FIELD_NUMBER: _ClassVar[int]
    variable_count: int
    total_variable_size: int
    max_variable_size: int
    kv_embedding_dims: _containers.RepeatedScalarFieldContainer[int]
    tensor_alloc_bytes: _containers.ScalarMap[str, int]
    def __init__(self, variable_count: _Optional[int] = ..., total_variable_size: _Optional[int] = ..., max_variable_size: _Optional[int] = ..., kv_embedding_dims: _Optional[_Iterable[int]] = ..., tensor_alloc_bytes: _Optional[_Mapping[str, int]] = ...) -> None: ...

class OperationStats(_message.Message):
    __slots__ = ("op_count", "update_op_count", "read_op_count", "input_fetch_dur", "flops", "recv_op_count", "runtime_flops")
    OP_COUNT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_OP_COUNT_FIELD_NUMBER: _ClassVar[int]
    READ_OP_COUNT_FIELD_NUMBER: _ClassVar[int]
    INPUT_FETCH_DUR_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    RECV_OP_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FLOPS_FIELD_NUMBER: _ClassVar[int]
    op_count: int
    update_op_count: int
    read_op_count: int
    input_fetch_dur: int
    flops: int
    recv_op_count: int
    runtime_flops: int
    def __init__(self, op_count: _Optional[int] = ..., update_op_count: _Optional[int] = ..., read_op_count: _Optional[int] = ..., input_fetch_dur: _Optional[int] = ..., flops: _Optional[int] = ..., recv_op_count: _Optional[int] = ..., runtime_flops: _Optional[int] = ...) -> None: ...

class ModelMetric(_message.Message):
    __slots__ = ("tensor_stats", "op_stats")
    TENSOR_STATS_FIELD_NUMBER: _ClassVar[int]
    OP_STATS_FIELD_NUMBER: _ClassVar[int]
    tensor_stats: TensorStats
    op_stats: OperationStats
    def __init__(self, tensor_stats: _Optional[_Union[TensorStats, _Mapping]] = ..., op_stats: _Optional[_Union[OperationStats, _Mapping]] = ...) -> None: ...

class GlobalStepRecord(_message.Message):
    __slots__ = ("timestamp", "global_step")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    timestamp: int
    global_step: int
    def __init__(self, timestamp: _Optional[int] = ..., global_step: _Optional[int] = ...) -> None: ...

class QueryTrainingStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: int
    def __init__(self, status: _Optional[int] = ...) -> None: ...
