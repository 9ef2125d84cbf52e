from elasticdl.wire import master_pb2 as _master_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OptimizerConfig(_message.Message):
    __slots__ = ("name", "flavor", "options")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    FLAVOR_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    flavor: str
    options: _containers.ScalarMap[str, float]
    def __init__(self, name: _Optional[str] = ..., flavor: _Optional[str] = ..., options: _Optional[_Mapping[str, float]] = ...) -> None: ...

class InitializeRequest(_message.Message):
    __slots__ = ("generation", "trainable", "state", "optimizer", "padding")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TRAINABLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    generation: int
    trainable: _containers.RepeatedCompositeFieldContainer[_master_pb2.Tensor]
    state: _containers.RepeatedCompositeFieldContainer[_master_pb2.Tensor]
    optimizer: OptimizerConfig
    padding: bytes
    def __init__(self, generation: _Optional[int] = ..., trainable: _Optional[_Iterable[_Union[_master_pb2.Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[_master_pb2.Tensor, _Mapping]]] = ..., optimizer: _Optional[_Union[OptimizerConfig, _Mapping]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class InitializeReply(_message.Message):
    __slots__ = ("done_before",)
    DONE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    done_before: bool
    def __init__(self, done_before: bool = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("frozen", "known_version", "generation")
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    frozen: str
    known_version: int
    generation: int
    def __init__(self, frozen: _Optional[str] = ..., known_version: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class PullReply(_message.Message):
    __slots__ = ("initialized", "version", "unchanged", "trainable", "state", "padding")
    INITIALIZED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    TRAINABLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    initialized: bool
    version: int
    unchanged: bool
    trainable: _containers.RepeatedCompositeFieldContainer[_master_pb2.Tensor]
    state: _containers.RepeatedCompositeFieldContainer[_master_pb2.Tensor]
    padding: bytes
    def __init__(self, initialized: bool = ..., version: _Optional[int] = ..., unchanged: bool = ..., trainable: _Optional[_Iterable[_Union[_master_pb2.Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[_master_pb2.Tensor, _Mapping]]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("worker", "sequence", "version", "learning_rate", "gradients", "state", "lease_id", "position", "batches", "generation", "padding")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    worker: str
    sequence: int
    version: int
    learning_rate: float
    gradients: _containers.RepeatedCompositeFieldContainer[_master_pb2.Tensor]
    state: _containers.RepeatedCompositeFieldContainer[_master_pb2.Tensor]
    lease_id: int
    position: int
    batches: int
    generation: int
    padding: bytes
    def __init__(self, worker: _Optional[str] = ..., sequence: _Optional[int] = ..., version: _Optional[int] = ..., learning_rate: _Optional[float] = ..., gradients: _Optional[_Iterable[_Union[_master_pb2.Tensor, _Mapping]]] = ..., state: _Optional[_Iterable[_Union[_master_pb2.Tensor, _Mapping]]] = ..., lease_id: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[int] = ..., generation: _Optional[int] = ..., padding: _Optional[bytes] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("accepted", "version")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    version: int
    def __init__(self, accepted: bool = ..., version: _Optional[int] = ...) -> None: ...

class FreezeRequest(_message.Message):
    __slots__ = ("name", "generation", "flush")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    flush: bool
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., flush: bool = ...) -> None: ...

class FreezeReply(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SaveRequest(_message.Message):
    __slots__ = ("name", "path", "buckets")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    buckets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., buckets: _Optional[_Iterable[int]] = ...) -> None: ...

class SaveReply(_message.Message):
    __slots__ = ("bytes", "crc32")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    crc32: int
    def __init__(self, bytes: _Optional[int] = ..., crc32: _Optional[int] = ...) -> None: ...

class FenceRequest(_message.Message):
    __slots__ = ("worker",)
    WORKER_FIELD_NUMBER: _ClassVar[int]
    worker: str
    def __init__(self, worker: _Optional[str] = ...) -> None: ...

class FenceReply(_message.Message):
    __slots__ = ("sequence", "lease_id", "position", "batches")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    lease_id: int
    position: int
    batches: int
    def __init__(self, sequence: _Optional[int] = ..., lease_id: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[int] = ...) -> None: ...

class ServerStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerStatusReply(_message.Message):
    __slots__ = ("initialized", "version", "parameters", "bytes", "pushes", "generation", "ready", "ps_map", "filled", "taken", "loads")
    INITIALIZED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    PS_MAP_FIELD_NUMBER: _ClassVar[int]
    FILLED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    initialized: bool
    version: int
    parameters: int
    bytes: int
    pushes: int
    generation: int
    ready: bool
    ps_map: _master_pb2.BucketMap
    filled: _containers.RepeatedCompositeFieldContainer[Filled]
    taken: _containers.RepeatedScalarFieldContainer[int]
    loads: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, initialized: bool = ..., version: _Optional[int] = ..., parameters: _Optional[int] = ..., bytes: _Optional[int] = ..., pushes: _Optional[int] = ..., generation: _Optional[int] = ..., ready: bool = ..., ps_map: _Optional[_Union[_master_pb2.BucketMap, _Mapping]] = ..., filled: _Optional[_Iterable[_Union[Filled, _Mapping]]] = ..., taken: _Optional[_Iterable[int]] = ..., loads: _Optional[_Iterable[int]] = ...) -> None: ...

class Filled(_message.Message):
    __slots__ = ("bucket", "server", "incarnation")
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    bucket: int
    server: int
    incarnation: str
    def __init__(self, bucket: _Optional[int] = ..., server: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...
