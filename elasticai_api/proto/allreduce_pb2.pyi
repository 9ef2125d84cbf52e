from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenRequest(_message.Message):
    __slots__ = ("worker", "dataset", "size", "batch_size", "epochs", "shuffle")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    dataset: str
    size: int
    batch_size: int
    epochs: int
    shuffle: bool
    def __init__(self, worker: _Optional[str] = ..., dataset: _Optional[str] = ..., size: _Optional[int] = ..., batch_size: _Optional[int] = ..., epochs: _Optional[int] = ..., shuffle: bool = ...) -> None: ...

class OpenReply(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    def __init__(self, generation: _Optional[int] = ...) -> None: ...

class GatherRequest(_message.Message):
    __slots__ = ("worker", "incarnation", "address", "generation", "since", "round", "dataset")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    worker: str
    incarnation: str
    address: str
    generation: int
    since: int
    round: int
    dataset: str
    def __init__(self, worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., generation: _Optional[int] = ..., since: _Optional[int] = ..., round: _Optional[int] = ..., dataset: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("worker", "address")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    address: str
    def __init__(self, worker: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("round", "members", "generation", "first_step", "restore_from", "size", "batch_size", "epochs", "per_step", "epoch", "at", "step", "open_epochs", "last_step", "stopped", "finished", "fresh", "leaving", "concluded")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    PER_STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    OPEN_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    CONCLUDED_FIELD_NUMBER: _ClassVar[int]
    round: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    generation: int
    first_step: int
    restore_from: str
    size: int
    batch_size: int
    epochs: int
    per_step: int
    epoch: int
    at: int
    step: int
    open_epochs: int
    last_step: int
    stopped: bool
    finished: bool
    fresh: bool
    leaving: bool
    concluded: bool
    def __init__(self, round: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., generation: _Optional[int] = ..., first_step: _Optional[int] = ..., restore_from: _Optional[str] = ..., size: _Optional[int] = ..., batch_size: _Optional[int] = ..., epochs: _Optional[int] = ..., per_step: _Optional[int] = ..., epoch: _Optional[int] = ..., at: _Optional[int] = ..., step: _Optional[int] = ..., open_epochs: _Optional[int] = ..., last_step: _Optional[int] = ..., stopped: bool = ..., finished: bool = ..., fresh: bool = ..., leaving: bool = ..., concluded: bool = ...) -> None: ...

class SyncedRequest(_message.Message):
    __slots__ = ("worker", "round", "generation", "dataset")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    worker: str
    round: int
    generation: int
    dataset: str
    def __init__(self, worker: _Optional[str] = ..., round: _Optional[int] = ..., generation: _Optional[int] = ..., dataset: _Optional[str] = ...) -> None: ...

class SyncedReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokenRequest(_message.Message):
    __slots__ = ("worker", "round", "reason")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    worker: str
    round: int
    reason: str
    def __init__(self, worker: _Optional[str] = ..., round: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class BrokenReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WaitingRequest(_message.Message):
    __slots__ = ("worker", "round", "seconds", "step_seconds", "meeting")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MEETING_FIELD_NUMBER: _ClassVar[int]
    worker: str
    round: int
    seconds: float
    step_seconds: float
    meeting: bool
    def __init__(self, worker: _Optional[str] = ..., round: _Optional[int] = ..., seconds: _Optional[float] = ..., step_seconds: _Optional[float] = ..., meeting: bool = ...) -> None: ...

class WaitingReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("worker", "incarnation")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    worker: str
    incarnation: str
    def __init__(self, worker: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OrderRequest(_message.Message):
    __slots__ = ("dataset", "epoch", "first", "count")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    epoch: int
    first: int
    count: int
    def __init__(self, dataset: _Optional[str] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class OrderReply(_message.Message):
    __slots__ = ("starts",)
    STARTS_FIELD_NUMBER: _ClassVar[int]
    starts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, starts: _Optional[_Iterable[int]] = ...) -> None: ...

class Unreadable(_message.Message):
    __slots__ = ("start", "end", "where", "reason")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    where: str
    reason: str
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., where: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class AdvanceRequest(_message.Message):
    __slots__ = ("worker", "generation", "dataset", "epoch", "at", "step", "loss_sum", "loss_steps", "report_id", "step_seconds", "stop_training", "bad")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    LOSS_STEPS_FIELD_NUMBER: _ClassVar[int]
    REPORT_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STOP_TRAINING_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    worker: str
    generation: int
    dataset: str
    epoch: int
    at: int
    step: int
    loss_sum: float
    loss_steps: int
    report_id: int
    step_seconds: float
    stop_training: bool
    bad: _containers.RepeatedCompositeFieldContainer[Unreadable]
    def __init__(self, worker: _Optional[str] = ..., generation: _Optional[int] = ..., dataset: _Optional[str] = ..., epoch: _Optional[int] = ..., at: _Optional[int] = ..., step: _Optional[int] = ..., loss_sum: _Optional[float] = ..., loss_steps: _Optional[int] = ..., report_id: _Optional[int] = ..., step_seconds: _Optional[float] = ..., stop_training: bool = ..., bad: _Optional[_Iterable[_Union[Unreadable, _Mapping]]] = ...) -> None: ...

class AdvanceReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
