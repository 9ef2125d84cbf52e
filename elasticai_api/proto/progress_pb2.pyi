from elasticai_api.proto import elasticai_api_pb2 as _elasticai_api_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShardProgress(_message.Message):
    __slots__ = ("task_id", "position", "batches")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    position: int
    batches: int
    def __init__(self, task_id: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[int] = ...) -> None: ...

class ProgressRequest(_message.Message):
    __slots__ = ("worker_id", "worker_type", "dataset_name", "shards", "global_step", "loss", "given_back")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_BACK_FIELD_NUMBER: _ClassVar[int]
    worker_id: int
    worker_type: str
    dataset_name: str
    shards: _containers.RepeatedCompositeFieldContainer[ShardProgress]
    global_step: int
    loss: float
    given_back: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, worker_id: _Optional[int] = ..., worker_type: _Optional[str] = ..., dataset_name: _Optional[str] = ..., shards: _Optional[_Iterable[_Union[ShardProgress, _Mapping]]] = ..., global_step: _Optional[int] = ..., loss: _Optional[float] = ..., given_back: _Optional[_Iterable[int]] = ...) -> None: ...

class ProgressReply(_message.Message):
    __slots__ = ("lost",)
    LOST_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lost: _Optional[_Iterable[int]] = ...) -> None: ...

class ToldShard(_message.Message):
    __slots__ = ("task_id", "dataset_name", "epoch", "start", "position", "end", "batches", "held")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    dataset_name: str
    epoch: int
    start: int
    position: int
    end: int
    batches: int
    held: bool
    def __init__(self, task_id: _Optional[int] = ..., dataset_name: _Optional[str] = ..., epoch: _Optional[int] = ..., start: _Optional[int] = ..., position: _Optional[int] = ..., end: _Optional[int] = ..., batches: _Optional[int] = ..., held: bool = ...) -> None: ...

class TellRequest(_message.Message):
    __slots__ = ("worker_id", "worker_type", "shards")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    worker_id: int
    worker_type: str
    shards: _containers.RepeatedCompositeFieldContainer[ToldShard]
    def __init__(self, worker_id: _Optional[int] = ..., worker_type: _Optional[str] = ..., shards: _Optional[_Iterable[_Union[ToldShard, _Mapping]]] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("worker_id", "worker_type", "dataset_name", "count")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    worker_id: int
    worker_type: str
    dataset_name: str
    count: int
    def __init__(self, worker_id: _Optional[int] = ..., worker_type: _Optional[str] = ..., dataset_name: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class FetchedShard(_message.Message):
    __slots__ = ("task", "epoch")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    task: _elasticai_api_pb2.Task
    epoch: int
    def __init__(self, task: _Optional[_Union[_elasticai_api_pb2.Task, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class FetchReply(_message.Message):
    __slots__ = ("shards",)
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[FetchedShard]
    def __init__(self, shards: _Optional[_Iterable[_Union[FetchedShard, _Mapping]]] = ...) -> None: ...
