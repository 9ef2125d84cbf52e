from elasticdl.wire import master_pb2 as _master_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OptimizerConfig(_message.Message):
    __slots__ = ("name", "flavor", "options", "source")
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
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    flavor: str
    options: _containers.ScalarMap[str, float]
    source: str
    def __init__(self, name: _Optional[str] = ..., flavor: _Optional[str] = ..., options: _Optional[_Mapping[str, float]] = ..., source: _Optional[str] = ...) -> None: ...

class ArrayHead(_message.Message):
    __slots__ = ("name", "dtype", "shape", "group", "bucket")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    group: str
    bucket: int
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., group: _Optional[str] = ..., bucket: _Optional[int] = ...) -> None: ...

class TableConfig(_message.Message):
    __slots__ = ("name", "width", "initializer", "initializer_options", "seed", "admit_after", "expire_after")
    class InitializerOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    INITIALIZER_FIELD_NUMBER: _ClassVar[int]
    INITIALIZER_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    ADMIT_AFTER_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_AFTER_FIELD_NUMBER: _ClassVar[int]
    name: str
    width: int
    initializer: str
    initializer_options: _containers.ScalarMap[str, float]
    seed: int
    admit_after: int
    expire_after: int
    def __init__(self, name: _Optional[str] = ..., width: _Optional[int] = ..., initializer: _Optional[str] = ..., initializer_options: _Optional[_Mapping[str, float]] = ..., seed: _Optional[int] = ..., admit_after: _Optional[int] = ..., expire_after: _Optional[int] = ...) -> None: ...

class InitializeRequest(_message.Message):
    __slots__ = ("generation", "arrays", "optimizer", "tables", "buckets")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    arrays: _containers.RepeatedCompositeFieldContainer[ArrayHead]
    optimizer: OptimizerConfig
    tables: _containers.RepeatedCompositeFieldContainer[TableConfig]
    buckets: bytes
    def __init__(self, generation: _Optional[int] = ..., arrays: _Optional[_Iterable[_Union[ArrayHead, _Mapping]]] = ..., optimizer: _Optional[_Union[OptimizerConfig, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[TableConfig, _Mapping]]] = ..., buckets: _Optional[bytes] = ...) -> None: ...

class InitializeReply(_message.Message):
    __slots__ = ("done_before", "moved")
    DONE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    done_before: bool
    moved: bytes
    def __init__(self, done_before: bool = ..., moved: _Optional[bytes] = ...) -> None: ...

class BucketVersion(_message.Message):
    __slots__ = ("buckets", "version")
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    buckets: bytes
    version: int
    def __init__(self, buckets: _Optional[bytes] = ..., version: _Optional[int] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("frozen", "known_version", "generation", "buckets")
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    frozen: str
    known_version: int
    generation: int
    buckets: bytes
    def __init__(self, frozen: _Optional[str] = ..., known_version: _Optional[int] = ..., generation: _Optional[int] = ..., buckets: _Optional[bytes] = ...) -> None: ...

class PullReply(_message.Message):
    __slots__ = ("initialized", "version", "unchanged", "arrays", "moved", "newer")
    INITIALIZED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    NEWER_FIELD_NUMBER: _ClassVar[int]
    initialized: bool
    version: int
    unchanged: bool
    arrays: _containers.RepeatedCompositeFieldContainer[ArrayHead]
    moved: bytes
    newer: _containers.RepeatedCompositeFieldContainer[BucketVersion]
    def __init__(self, initialized: bool = ..., version: _Optional[int] = ..., unchanged: bool = ..., arrays: _Optional[_Iterable[_Union[ArrayHead, _Mapping]]] = ..., moved: _Optional[bytes] = ..., newer: _Optional[_Iterable[_Union[BucketVersion, _Mapping]]] = ...) -> None: ...

class RowsHead(_message.Message):
    __slots__ = ("table", "ids", "dtype", "width")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    table: str
    ids: int
    dtype: str
    width: int
    def __init__(self, table: _Optional[str] = ..., ids: _Optional[int] = ..., dtype: _Optional[str] = ..., width: _Optional[int] = ...) -> None: ...

class PullRowsRequest(_message.Message):
    __slots__ = ("frozen", "generation", "rows", "buckets", "dtype")
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    frozen: str
    generation: int
    rows: _containers.RepeatedCompositeFieldContainer[RowsHead]
    buckets: bytes
    dtype: str
    def __init__(self, frozen: _Optional[str] = ..., generation: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[RowsHead, _Mapping]]] = ..., buckets: _Optional[bytes] = ..., dtype: _Optional[str] = ...) -> None: ...

class PullRowsReply(_message.Message):
    __slots__ = ("moved",)
    MOVED_FIELD_NUMBER: _ClassVar[int]
    moved: bytes
    def __init__(self, moved: _Optional[bytes] = ...) -> None: ...

class PushRequest(_message.Message):
    __slots__ = ("worker", "sequence", "version", "learning_rate", "arrays", "rows", "lease_id", "position", "batches", "generation", "buckets", "not_finite", "newer", "applied_buckets")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    NEWER_FIELD_NUMBER: _ClassVar[int]
    APPLIED_BUCKETS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    sequence: int
    version: int
    learning_rate: float
    arrays: _containers.RepeatedCompositeFieldContainer[ArrayHead]
    rows: _containers.RepeatedCompositeFieldContainer[RowsHead]
    lease_id: int
    position: int
    batches: int
    generation: int
    buckets: bytes
    not_finite: str
    newer: _containers.RepeatedCompositeFieldContainer[BucketVersion]
    applied_buckets: bytes
    def __init__(self, worker: _Optional[str] = ..., sequence: _Optional[int] = ..., version: _Optional[int] = ..., learning_rate: _Optional[float] = ..., arrays: _Optional[_Iterable[_Union[ArrayHead, _Mapping]]] = ..., rows: _Optional[_Iterable[_Union[RowsHead, _Mapping]]] = ..., lease_id: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[int] = ..., generation: _Optional[int] = ..., buckets: _Optional[bytes] = ..., not_finite: _Optional[str] = ..., newer: _Optional[_Iterable[_Union[BucketVersion, _Mapping]]] = ..., applied_buckets: _Optional[bytes] = ...) -> None: ...

class PushReply(_message.Message):
    __slots__ = ("accepted", "version", "moved", "refused")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    version: int
    moved: bytes
    refused: int
    def __init__(self, accepted: bool = ..., version: _Optional[int] = ..., moved: _Optional[bytes] = ..., refused: _Optional[int] = ...) -> None: ...

class ReplicateHello(_message.Message):
    __slots__ = ("server", "incarnation", "generation")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    server: int
    incarnation: str
    generation: int
    def __init__(self, server: _Optional[int] = ..., incarnation: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ReplicateWelcome(_message.Message):
    __slots__ = ("incarnation", "position")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    position: int
    def __init__(self, incarnation: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("position", "version", "buckets", "push", "initialize", "fill", "handover", "flush", "fence")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    INITIALIZE_FIELD_NUMBER: _ClassVar[int]
    FILL_FIELD_NUMBER: _ClassVar[int]
    HANDOVER_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    position: int
    version: int
    buckets: bytes
    push: PushRequest
    initialize: InitializeRequest
    fill: Fill
    handover: Handover
    flush: Flush
    fence: str
    def __init__(self, position: _Optional[int] = ..., version: _Optional[int] = ..., buckets: _Optional[bytes] = ..., push: _Optional[_Union[PushRequest, _Mapping]] = ..., initialize: _Optional[_Union[InitializeRequest, _Mapping]] = ..., fill: _Optional[_Union[Fill, _Mapping]] = ..., handover: _Optional[_Union[Handover, _Mapping]] = ..., flush: _Optional[_Union[Flush, _Mapping]] = ..., fence: _Optional[str] = ...) -> None: ...

class Fill(_message.Message):
    __slots__ = ("attributes", "arrays", "part", "parts")
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ARRAYS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    attributes: str
    arrays: _containers.RepeatedCompositeFieldContainer[ArrayHead]
    part: int
    parts: int
    def __init__(self, attributes: _Optional[str] = ..., arrays: _Optional[_Iterable[_Union[ArrayHead, _Mapping]]] = ..., part: _Optional[int] = ..., parts: _Optional[int] = ...) -> None: ...

class Handover(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Flush(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ("generation", "map_version")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    map_version: int
    def __init__(self, generation: _Optional[int] = ..., map_version: _Optional[int] = ...) -> None: ...

class FlushReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FreezeRequest(_message.Message):
    __slots__ = ("name", "generation", "flush", "map_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FLUSH_FIELD_NUMBER: _ClassVar[int]
    MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    flush: bool
    map_version: int
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., flush: bool = ..., map_version: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("name", "path", "buckets", "since")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    buckets: _containers.RepeatedScalarFieldContainer[int]
    since: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., buckets: _Optional[_Iterable[int]] = ..., since: _Optional[str] = ...) -> None: ...

class SaveReply(_message.Message):
    __slots__ = ("bytes", "crc32", "complete")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    crc32: int
    complete: bool
    def __init__(self, bytes: _Optional[int] = ..., crc32: _Optional[int] = ..., complete: bool = ...) -> None: ...

class FenceRequest(_message.Message):
    __slots__ = ("worker", "generation")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    worker: str
    generation: int
    def __init__(self, worker: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class FenceReply(_message.Message):
    __slots__ = ("sequence", "lease_id", "position", "batches", "buckets", "newer")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    NEWER_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    lease_id: int
    position: int
    batches: int
    buckets: _containers.RepeatedScalarFieldContainer[int]
    newer: _containers.RepeatedCompositeFieldContainer[PartialBatch]
    def __init__(self, sequence: _Optional[int] = ..., lease_id: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[int] = ..., buckets: _Optional[_Iterable[int]] = ..., newer: _Optional[_Iterable[_Union[PartialBatch, _Mapping]]] = ...) -> None: ...

class PartialBatch(_message.Message):
    __slots__ = ("sequence", "lease_id", "position", "batches", "buckets")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    lease_id: int
    position: int
    batches: int
    buckets: bytes
    def __init__(self, sequence: _Optional[int] = ..., lease_id: _Optional[int] = ..., position: _Optional[int] = ..., batches: _Optional[int] = ..., buckets: _Optional[bytes] = ...) -> None: ...

class ServerStatusRequest(_message.Message):
    __slots__ = ("figures",)
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    figures: bool
    def __init__(self, figures: bool = ...) -> None: ...

class ServerStatusReply(_message.Message):
    __slots__ = ("initialized", "version", "parameters", "bytes", "pushes", "generation", "ready", "ps_map", "filled", "taken", "loads", "rows", "not_finite", "figures", "refused", "frozen")
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
    ROWS_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
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
    rows: int
    not_finite: int
    figures: Figures
    refused: int
    frozen: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, initialized: bool = ..., version: _Optional[int] = ..., parameters: _Optional[int] = ..., bytes: _Optional[int] = ..., pushes: _Optional[int] = ..., generation: _Optional[int] = ..., ready: bool = ..., ps_map: _Optional[_Union[_master_pb2.BucketMap, _Mapping]] = ..., filled: _Optional[_Iterable[_Union[Filled, _Mapping]]] = ..., taken: _Optional[_Iterable[int]] = ..., loads: _Optional[_Iterable[int]] = ..., rows: _Optional[int] = ..., not_finite: _Optional[int] = ..., figures: _Optional[_Union[Figures, _Mapping]] = ..., refused: _Optional[int] = ..., frozen: _Optional[_Iterable[str]] = ...) -> None: ...

class Figures(_message.Message):
    __slots__ = ("seconds", "calls", "staleness", "tables", "dense_bytes", "not_finite")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    DENSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NOT_FINITE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    calls: _containers.RepeatedCompositeFieldContainer[CallFigures]
    staleness: Distribution
    tables: _containers.RepeatedCompositeFieldContainer[TableFigures]
    dense_bytes: int
    not_finite: int
    def __init__(self, seconds: _Optional[float] = ..., calls: _Optional[_Iterable[_Union[CallFigures, _Mapping]]] = ..., staleness: _Optional[_Union[Distribution, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[TableFigures, _Mapping]]] = ..., dense_bytes: _Optional[int] = ..., not_finite: _Optional[int] = ...) -> None: ...

class CallFigures(_message.Message):
    __slots__ = ("kind", "microseconds")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MICROSECONDS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    microseconds: Distribution
    def __init__(self, kind: _Optional[str] = ..., microseconds: _Optional[_Union[Distribution, _Mapping]] = ...) -> None: ...

class TableFigures(_message.Message):
    __slots__ = ("table", "rows", "bytes", "pulled", "found", "pushed", "refused", "hot")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PULLED_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    PUSHED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    HOT_FIELD_NUMBER: _ClassVar[int]
    table: str
    rows: int
    bytes: int
    pulled: int
    found: int
    pushed: int
    refused: int
    hot: _containers.RepeatedCompositeFieldContainer[HotId]
    def __init__(self, table: _Optional[str] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., pulled: _Optional[int] = ..., found: _Optional[int] = ..., pushed: _Optional[int] = ..., refused: _Optional[int] = ..., hot: _Optional[_Iterable[_Union[HotId, _Mapping]]] = ...) -> None: ...

class HotId(_message.Message):
    __slots__ = ("id", "share")
    ID_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    id: int
    share: float
    def __init__(self, id: _Optional[int] = ..., share: _Optional[float] = ...) -> None: ...

class Distribution(_message.Message):
    __slots__ = ("classes", "counts", "sum", "largest")
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    LARGEST_FIELD_NUMBER: _ClassVar[int]
    classes: _containers.RepeatedScalarFieldContainer[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    sum: int
    largest: int
    def __init__(self, classes: _Optional[_Iterable[int]] = ..., counts: _Optional[_Iterable[int]] = ..., sum: _Optional[int] = ..., largest: _Optional[int] = ...) -> None: ...

class Filled(_message.Message):
    __slots__ = ("bucket", "server", "incarnation")
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    bucket: int
    server: int
    incarnation: str
    def __init__(self, bucket: _Optional[int] = ..., server: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...
