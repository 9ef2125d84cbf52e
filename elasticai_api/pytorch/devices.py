"""The device of a model, and the backend of its gradients: gloo, or NCCL between GPUs.

gloo connects the members of a round in any case. It carries what they tell each other and the state of the training.
Gradients that lie on GPUs go by NCCL if that can work: all members have their model on a GPU, each on one of its own,
and a PyTorch that has NCCL. Every member reports its GPU, so all make the same decision. ELASTICAI_BACKEND, or
an argument, can say otherwise: `gloo`, or `nccl`, with which it is an error if that cannot work.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from elasticai_api.common.constants import PodEnv
from elasticai_api.errors import ElasticError

BACKEND = "ELASTICAI_BACKEND"
AUTO, GLOO, NCCL = "auto", "gloo", "nccl"
_LOCAL_RANK = "LOCAL_RANK"


def wanted_backend(argument: str | None, environment: Mapping[str, str]) -> str:
    """The argument, or else the environment, or else whatever works best."""
    name = argument or environment.get(BACKEND) or AUTO
    if name not in (AUTO, GLOO, NCCL):
        raise ElasticError(f"The backend can be {AUTO}, {GLOO} or {NCCL}, not {name!r}.")
    return name


def local_device(environment: Mapping[str, str] | None = None) -> torch.device:
    """The GPU for this process, if there are any: the one with the number of LOCAL_RANK, or else of the worker."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        return torch.device("cpu")
    return torch.device("cuda", device_number(os.environ if environment is None else environment, count))


def device_number(environment: Mapping[str, str], count: int) -> int:
    """Returns the number of the GPU to use, among those that this process sees after CUDA_VISIBLE_DEVICES."""
    for name in (_LOCAL_RANK, PodEnv.WORKER_ID):
        given = environment.get(name, "")
        if given.isdigit():
            return int(given) % count
    return 0


def gpu_identity(parameters: Sequence[Any], backend: str) -> int:
    """A number that only this GPU has; 0 if the gradients of these parameters do not go by NCCL."""
    devices = {parameter.device for parameter in parameters}
    reason = ""
    if not devices or any(device.type != "cuda" for device in devices):
        reason = "the model is not on a GPU"
    elif len(devices) > 1:
        reason = "the model is on several GPUs"
    elif not dist.is_nccl_available():
        reason = "this PyTorch has no NCCL"
    if backend == NCCL and reason:
        raise ElasticError(f"Gradients cannot go by NCCL: {reason}.")
    if backend == GLOO or reason:
        return 0
    return _number(_name_of(next(iter(devices))))


def all_by_nccl(identities: Sequence[int], backend: str) -> bool:
    """Whether members with these GPUs can use NCCL: it refuses two processes on one GPU."""
    possible = all(identities) and len(set(identities)) == len(identities)
    if backend == NCCL and not possible:
        raise ElasticError(
            "Gradients cannot go by NCCL: "
            + ("two workers share a GPU." if all(identities) else "a worker has its model on no GPU.")
        )
    return possible


def _name_of(device: Any) -> str:
    identity = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    if identity is not None:
        return str(identity)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return f"{socket.gethostname()}/{visible}/{device.index}"


def _number(name: str) -> int:
    """Never 0, and small enough for a signed number of 64 bits."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "big") + 1
