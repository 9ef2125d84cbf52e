"""Derives the status of a node from its pod: the only place that knows Kubernetes' terms for it.

Pure: a pod's document goes in, a `NodeStatus` comes out. Nothing but the pod is looked at, because a job has no right
to look at machines.

A pod that was deleted (by a person, by the scheduler for a higher priority, by the drain of a machine) is
*leaving* until its container has terminated; then its reason is KILLED, whatever its exit code: a program's last
seconds under SIGTERM say nothing about it. Kubernetes' own reasons for ending a pod count the same.

Others may have put containers of theirs beside ours (a proxy, a collector of logs). Ours is the one with the name of
its role, and what the node does is what that one does. Those that have to come before it can keep it from beginning.
"""

from __future__ import annotations

import dataclasses
import datetime
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from elasticdl.platforms.exit_reason import own_fault, signal_name
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.platform import EXIT_OUT_OF_MEMORY, EndReason, NodePhase, NodeStatus

Document = Mapping[str, Any]

# A container that is on its way; anything else that it waits for is a trouble to tell of.
_ON_ITS_WAY = ("ContainerCreating", "PodInitializing", "")
_CANNOT_START = ("StartError", "ContainerCannotRun")
# The container was gone when its runtime, or its kubelet, looked for it, so its end was not observed. The exit code
# that Kubernetes reports then (255, 137) is not the program's.
_NOT_SEEN = ("Unknown", "ContainerStatusUnknown")
_SIGNALS = {128 + signal.SIGKILL, 128 + signal.SIGTERM}
# In the reason of the whole pod: the cluster has ended it. (DeadlineExceeded is ours, for a master that has failed.)
_ENDED_BY_CLUSTER = (
    "Evicted",
    "NodeAffinity",
    "NodeLost",
    "NodeShutdown",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "Preempting",
    "Shutdown",
    "Terminated",
    "UnexpectedAdmissionError",
)
_PULLED_LATER = "ImagePullBackOff: "
_NOT_PULLED = "ErrImagePull: "
_NOT_YET_SAID = "ReadinessGatesNotReady"
_UNREADABLE_LOG = "Error on reading termination message from logs"
_LONGEST_LAST_LINE = 300
_LONGEST_MESSAGE = 2000


def node_status(
    pod: Document, *, gone: bool = False, stopped: bool = False, left: bool = False
) -> NodeStatus:
    """`gone`: this is the last that was seen of it. `stopped`: we have asked for its end. `left`: it was seen to be on
    its way out while it ran, so that the clocks of two machines need not be asked what came first.
    """
    status = pod.get("status") or {}
    terminated = _state(pod).get("terminated") or {}
    ended = bool(gone or terminated or status.get("phase") in ("Succeeded", "Failed"))
    node = naming.node_of(dict(pod))
    pending = NodeStatus(
        name=node,
        role=node.rpartition("-")[0],
        phase=NodePhase.PENDING,
        place=naming.place_of(dict(pod)),
    )
    if ended:
        reason, message = _ending(pod, status, terminated, left=left)
        code = terminated.get("exitCode")
        return dataclasses.replace(
            pending,
            phase=NodePhase.SUCCEEDED if code == 0 else NodePhase.FAILED,
            reason=EndReason.STOPPED if stopped else reason,
            exit_code=code,
            message=message[:_LONGEST_MESSAGE],
        )
    if leaving(pod):
        return dataclasses.replace(pending, phase=NodePhase.LEAVING, message=_disruption(status))
    if _state(pod).get("running"):
        words = f"{machine_of(pod)} does not answer" if unreachable(pod) else ""
        return dataclasses.replace(pending, phase=NodePhase.RUNNING, message=words)
    return dataclasses.replace(pending, message=_waits_for(pod)[:_LONGEST_MESSAGE])


def with_cause(status: NodeStatus, before: str) -> NodeStatus:
    """The same status, if its words say all. That an image pull is retried does not say what was wrong with it,
    as the words `before` did.
    """
    if status.message.startswith(_PULLED_LATER) and before.startswith(_NOT_PULLED):
        return dataclasses.replace(status, message=before)
    return status


def lost(pod: Document, *, stopped: bool) -> NodeStatus:
    """Returns the status of a pod that should have terminated long ago and whose machine does not report."""
    node = naming.node_of(dict(pod))
    return NodeStatus(
        name=node,
        role=node.rpartition("-")[0],
        phase=NodePhase.FAILED,
        reason=EndReason.STOPPED if stopped else EndReason.KILLED,
        message=f"{machine_of(pod)} does not answer any more",
    )


def unreachable(pod: Document) -> bool:
    """Returns whether the cluster has lost contact with the pod's machine. The cluster then marks the pod as not
    ready and leaves the rest of the machine's last report, the containers included, as it was. A pod whose
    machine itself reports an unsatisfied readiness gate is reachable.
    """
    conditions = {c.get("type"): c for c in (pod.get("status") or {}).get("conditions") or []}
    ready = conditions.get("Ready")
    # All containers that count: foreign ones may be listed elsewhere than ours.
    containers = conditions.get("ContainersReady") or {}
    return (
        ready is not None
        and ready.get("status") != "True"
        and ready.get("reason") != _NOT_YET_SAID
        and containers.get("status") == "True"
    )


def outlived(pod: Document) -> bool:
    """The node has ended, and containers of others keep its pod running."""
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return bool(_state(pod).get("terminated")) and any(
        (container.get("state") or {}).get("running") for container in containers
    )


def last_end(pod: Document) -> str:
    """Describes the last end of a container that is restarted whenever it fails. Empty if none has ended yet."""
    status = pod.get("status") or {}
    container = _container(pod)
    for state in (container.get("state") or {}, container.get("lastState") or {}):
        if terminated := state.get("terminated"):
            _, message = _ending(pod, status, terminated, left=False)
            return message[:_LONGEST_MESSAGE] or "exit code 0"
    return ""


def running_since(pod: Document) -> float:
    """Returns the start time by the machine's clock; 0 if the pod does not run."""
    started = (_state(pod).get("running") or {}).get("startedAt")
    return _time(started).timestamp() if started else 0.0


def on_its_way(pod: Document) -> bool:
    """A machine makes it: what is in its way, if anything, is not in the pod, but in its events."""
    status = pod.get("status") or {}
    given = (pod.get("spec") or {}).get("nodeName") and status.get("phase") == "Pending"
    return bool(given) and not leaving(pod) and not _waits_for(pod)


def leaving(pod: Document) -> bool:
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def grace_seconds(pod: Document) -> float:
    """Returns the grace period of a terminating pod."""
    return float((pod.get("metadata") or {}).get("deletionGracePeriodSeconds") or 0)


def machine_of(pod: Document) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "its machine")


def own_container(pod: Document, containers: Sequence[Document]) -> Document:
    """Ours, of a pod's containers or of what is said of them; an empty one, if there is none yet."""
    role = naming.node_of(dict(pod)).rpartition("-")[0]
    return next((container for container in containers if container.get("name") == role), {})


def _container(pod: Document) -> Document:
    return own_container(pod, (pod.get("status") or {}).get("containerStatuses") or [])


def _state(pod: Document) -> dict[str, Any]:
    state: dict[str, Any] = _container(pod).get("state") or {}
    return state


def _ending(pod: Document, status: Document, terminated: Document, *, left: bool) -> tuple[EndReason, str]:
    if status.get("reason") in _ENDED_BY_CLUSTER:
        return EndReason.KILLED, _sentence(status["reason"], status.get("message"))
    if disruption := _disruption(status):
        return EndReason.KILLED, disruption
    if not terminated:
        if (failure := _failed_before(status)) and not leaving(pod):
            return EndReason.KILLED, failure
        if leaving(pod) or not status.get("reason"):
            return EndReason.KILLED, "its pod was deleted"
        return EndReason.KILLED, _sentence(status["reason"], status.get("message"))
    code = int(terminated.get("exitCode") or 0)
    why = str(terminated.get("reason") or "")
    if why in _CANNOT_START:
        return EndReason.CANNOT_START, _without_noise(str(terminated.get("message") or why))
    if why == "OOMKilled" or code == EXIT_OUT_OF_MEMORY:
        words = "it used more memory than it may" if why == "OOMKilled" else "an allocation of memory failed"
        return EndReason.OUT_OF_MEMORY, words
    if left or (leaving(pod) and not _ended_before(pod, terminated)):
        return EndReason.KILLED, "its pod was deleted"
    if why in _NOT_SEEN:
        return EndReason.KILLED, "its machine was started again, or lost sight of it"
    if code == 0:
        return EndReason.COMPLETED, ""
    if code in _SIGNALS:
        return EndReason.KILLED, f"ended by {signal_name(code - 128)}"
    if code > 128 and own_fault(code - 128):
        return EndReason.ERROR, f"crashed with {signal_name(code - 128)}"
    return EndReason.ERROR, _code_and_words(code, terminated)


def _failed_before(status: Document) -> str:
    """Describes a failed container that has to end before ours begins."""
    for container in status.get("initContainerStatuses") or []:
        terminated = (container.get("state") or {}).get("terminated") or {}
        if code := terminated.get("exitCode"):
            return f"its container {container.get('name')} has failed: {_code_and_words(code, terminated)}"
    return ""


def _code_and_words(code: int, terminated: Document) -> str:
    last = _last_line(str(terminated.get("message") or ""))
    return f"exit code {code}; last output: {last}" if last else f"exit code {code}"


def _ended_before(pod: Document, terminated: Document) -> bool:
    """Returns whether the pod had terminated by itself before its deletion, if the clocks of both are right."""
    finished = terminated.get("finishedAt")
    if not finished:
        return False
    asked = _time(pod["metadata"]["deletionTimestamp"]) - datetime.timedelta(seconds=grace_seconds(pod))
    return _time(finished) < asked


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _waits_for(pod: Document) -> str:
    status = pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _sentence(condition.get("reason"), condition.get("message"))
    if words := _trouble(_state(pod)):
        return words
    for container in status.get("initContainerStatuses") or []:
        if words := _trouble(container.get("state") or {}):
            return f"its container {container.get('name')}: {words}"
    return ""


def _trouble(state: Document) -> str:
    waiting = state.get("waiting") or {}
    if str(waiting.get("reason") or "") in _ON_ITS_WAY:
        return ""
    return _sentence(waiting.get("reason"), waiting.get("message"))


def _disruption(status: Document) -> str:
    """Newer clusters say in a condition why they end a pod."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return _sentence(condition.get("reason"), condition.get("message"))
    return ""


def _sentence(reason: object, message: object) -> str:
    return f"{reason}: {message}" if message else str(reason or "")


def _without_noise(text: str) -> str:
    """Removes the text that kubelets add when they cannot read a container's log."""
    return text.partition(_UNREADABLE_LOG)[0].rstrip(" :\n")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in _without_noise(text).splitlines() if line.strip()]
    return lines[-1][:_LONGEST_LAST_LINE] if lines else ""
