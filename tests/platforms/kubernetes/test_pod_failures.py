"""What the platform does about pods that do not behave, with an API server that can be made to say anything."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import fenced_changes
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Pauses
from elasticdl.platforms.kubernetes.kubeconfig import Access, Identity
from elasticdl.platforms.kubernetes.kubernetes_platform import KubernetesPlatform
from elasticdl.platforms.kubernetes.place_addresses import REMOVAL_SECONDS
from elasticdl.platforms.kubernetes.pods.manifest import NO_NOTICE, NOTICE_SECONDS
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus

PODS = Path(__file__).parent / "pods"
FORBIDDEN = 'pods is forbidden: User "system:serviceaccount:lab:elasticdl" cannot do that'
OWNER: dict[str, Any] = {"kind": "ConfigMap", "metadata": {"name": "elasticdl-rec", "uid": "1"}}


def pod(name: str, number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PODS / f"{name}.json").read_text())
    document["metadata"]["name"] = f"rec-edljob-worker-{number}"
    document["metadata"]["labels"]["elasticdl-replica-index"] = str(number)
    return document


def owned(document: dict[str, Any], uid: str) -> dict[str, Any]:
    document["metadata"]["ownerReferences"] = [{"kind": "ConfigMap", "name": "elasticdl-rec", "uid": uid}]
    return document


class Api:
    """Knows some pods, reports changes to watchers, and takes or refuses new ones."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = list(pods)
        self.refusals: list[tuple[int, str, str]] = []
        self.events: list[dict[str, Any]] = []
        self.looks = 0
        # Of what is asked for by these methods, the next so many are not there.
        self.missing: dict[str, int] = {}
        # And these may not be asked for.
        self.forbidden: dict[str, int] = {}
        # So many changes of services meet those of a job that had the name before, whose record is gone.
        self.services_of_others = 0
        # What a server adds to its answers that is asked too much.
        self.headers = ""
        # Creations are carried out when this is set.
        self.open = asyncio.Event()
        self.open.set()
        # And lists, which are made at once, arrive when this is.
        self.listed = asyncio.Event()
        self.listed.set()
        self.lists = 0
        self.asked: list[tuple[str, str, Any]] = []
        self.news: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        sizes = [line for line in head.splitlines() if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(sizes[0].split(":")[1]) if sizes else 0)
        method, path, _ = head.split("\r\n", 1)[0].split(" ")
        if "watch=true" in path:
            await self._watch(writer)
            return
        status = 200
        result: dict[str, Any] = {"metadata": {"resourceVersion": "1"}, "items": self.pods}
        if method == "GET" and "/pods/" in path:
            found = [pod for pod in self.pods if pod["metadata"]["name"] == path.rpartition("/")[2]]
            status, result = (200, found[0]) if found else (404, {"reason": "NotFound", "message": "gone"})
        elif method == "GET" and "/pods" in path:
            self.lists += 1
            result["items"] = list(self.pods)
            await self.listed.wait()
        if "/events" in path:
            self.looks += 1
            result["items"] = self.events
        if method != "GET":
            self.asked.append((method, path, json.loads(body)))
            if method == "POST":
                await self.open.wait()
            if self.missing.get(method):
                self.missing[method] -= 1
                status, result = 404, {"reason": "NotFound", "message": "not there"}
            elif self.forbidden.get(method):
                self.forbidden[method] -= 1
                status, result = 403, {"reason": "Forbidden", "message": FORBIDDEN}
            elif method == "POST" and self.refusals:
                status, reason, message = self.refusals.pop(0)
                result = {"reason": reason, "message": message}
            elif "/services" in path:
                theirs = method == "PATCH" and self.services_of_others > 0
                self.services_of_others -= theirs
                owner = "of another record" if theirs else OWNER["metadata"]["uid"]
                result = owned({"metadata": {}, "spec": {"clusterIP": f"10.0.0.{len(self.asked)}"}}, owner)
        text = json.dumps(result).encode()
        writer.write(
            f"HTTP/1.1 {status} W\r\nContent-Length: {len(text)}\r\n{self.headers}Connection: close\r\n\r\n".encode()
        )
        writer.write(text)
        await writer.drain()
        writer.close()

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 W\r\nTransfer-Encoding: chunked\r\n\r\n")
        kind = ""
        # A watcher that got an error leaves; the news are for the next watcher.
        while kind != "ERROR":
            kind, item = await self.news.get()
            line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
            writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            await writer.drain()
        writer.close()


def play(
    api: Api,
    scenario: Callable[[KubernetesPlatform], Awaitable[None]],
    *,
    clock: Callable[[], float] = time.monotonic,
    before_changes: Callable[[], Awaitable[None]] | None = None,
    pod_ip: str = "",
    settings: dict[str, Any] | None = None,
    **flags: Any,
) -> None:
    """`settings`: further arguments of the platform."""

    async def run() -> None:
        server = await asyncio.start_server(api.answer, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        access = Access(
            server=f"http://{address[0]}:{address[1]}",
            namespace="lab",
            tls=ssl.create_default_context(),
            identity=Identity(token="secret"),
            inside=True,
        )
        given = {"job_name": "rec", "image_name": "i", "job_command": "x", **flags}
        async with Cluster(access, patience=60) as cluster:
            platform = KubernetesPlatform(
                cluster,
                JobSpec.build(**given),
                owner=OWNER,
                pod_ip=pod_ip,
                slack_seconds=0.1,
                lost_seconds=0.5,
                quota_seconds=0.01,
                look_after_seconds=(0.01, 0.02, 0.03),
                clock=clock,
                before_changes=before_changes,
                **(settings or {}),
            )
            try:
                await asyncio.wait_for(scenario(platform), 60)
            finally:
                await platform.close()
        server.close()

    asyncio.run(run())


async def wait_for_phase(platform: KubernetesPlatform, name: str, *phases: NodePhase) -> NodeStatus:
    async for status in platform.events():
        if status.name == name and status.phase in phases:
            return status
    raise AssertionError("the events ended")


def request(number: int, role: str = "worker", **fields: Any) -> NodeRequest:
    return NodeRequest(name=f"{role}-{number}", role=role, command=("x",), **fields)


def test_a_pod_whose_machine_is_lost_is_given_up_after_its_grace() -> None:
    leaving = pod("leaving", 3)
    leaving["metadata"]["deletionGracePeriodSeconds"] = 1
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", leaving))
        await wait_for_phase(platform, "worker-3", NodePhase.LEAVING)
        ended = await wait_for_phase(platform, "worker-3", NodePhase.FAILED)
        assert (ended.reason, ended.message) == (EndReason.KILLED, "node-0 does not answer any more")

    play(api, scenario)
    ((method, path, options),) = api.asked
    assert (method, path.rpartition("/")[2]) == ("DELETE", "rec-edljob-worker-3")
    assert options["gracePeriodSeconds"] == 0
    assert options["preconditions"] == {"uid": leaving["metadata"]["uid"]}


EXPIRED = ("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


def test_pod_created_and_deleted_between_watches_is_reported_killed() -> None:
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        await platform.start(request(4))
        api.news.put_nowait(EXPIRED)
        ended = await wait_for_phase(platform, "worker-4", NodePhase.FAILED)
        assert (ended.reason, ended.message) == (EndReason.KILLED, "its pod was deleted before it was seen")
        assert {s.name: s.phase for s in await platform.nodes()}["worker-3"] is NodePhase.RUNNING

    play(api, scenario)


def test_pods_that_a_list_cannot_have_are_not_missed() -> None:
    """One that was made when the list had been asked for, and one for which there is no room."""
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.listed.clear()
        api.news.put_nowait(EXPIRED)
        while api.lists < 2:
            await asyncio.sleep(0.01)
        await platform.start(request(4))
        api.refusals = [(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: team')] * 1000
        await platform.start(request(5))
        api.listed.set()
        for number in (4, 5):
            api.news.put_nowait(("ADDED", pod("running", number)))
        for number in (4, 5):
            await wait_for_phase(platform, f"worker-{number}", NodePhase.RUNNING)

    play(api, scenario)


def test_one_that_was_seen_before_its_creation_was_answered_is_not_missed() -> None:
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.open.clear()
        starting = asyncio.create_task(platform.start(request(4)))
        api.news.put_nowait(("ADDED", pod("scheduled", 4)))
        while not api.looks:
            await asyncio.sleep(0.01)
        api.open.set()
        await starting
        api.pods.append(pod("scheduled", 4))
        api.news.put_nowait(EXPIRED)
        while api.lists < 2:
            await asyncio.sleep(0.01)
        api.news.put_nowait(("MODIFIED", pod("running", 4)))
        await wait_for_phase(platform, "worker-4", NodePhase.RUNNING)

    play(api, scenario)


def unreachable(number: int) -> dict[str, Any]:
    document = pod("running", number)
    for condition in document["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition["status"] = "False"
    return document


def test_pod_on_unreachable_machine_fails_and_is_deleted() -> None:
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", unreachable(3)))
        ended = await wait_for_phase(platform, "worker-3", NodePhase.FAILED)
        assert (ended.reason, ended.message) == (EndReason.KILLED, "node-0 does not answer any more")

    play(api, scenario)
    assert [method for method, _, _ in api.asked] == ["DELETE"]


def test_a_machine_that_answers_again() -> None:
    api = Api(pod("running", 3), pod("running", 4))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        for document in (unreachable(3), pod("running", 3), unreachable(4)):
            api.news.put_nowait(("MODIFIED", document))
        await wait_for_phase(platform, "worker-4", NodePhase.FAILED)
        assert {s.name: s.phase for s in await platform.nodes()}["worker-3"] is NodePhase.RUNNING

    play(api, scenario)


def beside_a_proxy(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the pod with an injected sidecar container that runs on."""
    status = document["status"]
    proxy = {
        "name": "istio-proxy",
        "state": {"running": {"startedAt": "2026-11-16T05:35:15Z"}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": "docker.io/istio/proxyv2:1.20.0",
        "started": True,
    }
    # By name, as kubelets have them.
    status["containerStatuses"] = [proxy, *status["containerStatuses"]]
    status["phase"] = "Running"
    return document


@pytest.mark.parametrize(
    ("name", "reason", "code"), [("completed", EndReason.COMPLETED, 0), ("failed", EndReason.ERROR, 3)]
)
def test_a_node_has_ended_though_a_container_beside_it_runs_on(
    name: str, reason: EndReason, code: int
) -> None:
    api = Api(beside_a_proxy(pod("running", 3)))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", beside_a_proxy(pod(name, 3))))
        ended = await wait_for_phase(platform, "worker-3", NodePhase.SUCCEEDED, NodePhase.FAILED)
        assert (ended.reason, ended.exit_code) == (reason, code)
        while not api.asked:
            await asyncio.sleep(0.01)

    play(api, scenario)
    ((method, path, options),) = api.asked
    assert (method, path.rpartition("/")[2]) == ("DELETE", "rec-edljob-worker-3")
    assert options["preconditions"] == {"uid": pod(name, 3)["metadata"]["uid"]}


def test_the_pods_of_nodes_that_have_ended_stay_for_their_logs() -> None:
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", pod("failed", 3)))
        await wait_for_phase(platform, "worker-3", NodePhase.FAILED)

    play(api, scenario)
    assert api.asked == []


def test_a_pod_that_ends_in_its_time_is_left_alone() -> None:
    api = Api(pod("leaving", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", pod("deleted", 3)))
        assert (await wait_for_phase(platform, "worker-3", NodePhase.FAILED)).reason is EndReason.KILLED

    play(api, scenario)
    assert api.asked == []


def test_deleted_pod_that_ends_well_is_killed_whatever_the_clocks() -> None:
    """The program of a deleted pod ends well, on a machine whose clock is hours behind that of the API server."""
    ended = pod("completed", 3)
    ended["metadata"] |= {"deletionTimestamp": "2026-11-16T09:00:00Z", "deletionGracePeriodSeconds": 30}
    api = Api(pod("leaving", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", ended))
        assert (await wait_for_phase(platform, "worker-3", NodePhase.SUCCEEDED)).reason is EndReason.KILLED

    play(api, scenario)


def test_pod_over_quota_is_retried_until_there_is_room() -> None:
    api = Api()
    words = 'pods "x" is forbidden: exceeded quota: team, requested: cpu=4, used: cpu=8, limited: cpu=10'
    api.refusals = [(403, "Forbidden", words)] * 3

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0))
        assert [status.message for status in await platform.nodes()] == [words]
        while len(api.asked) < 4:
            await asyncio.sleep(0.01)
        api.news.put_nowait(("ADDED", pod("running", 0)))
        await wait_for_phase(platform, "worker-0", NodePhase.RUNNING)

    play(api, scenario)


def test_forbidden_pod_fails_at_once_also_with_quota_in_job_name() -> None:
    api = Api()
    words = 'pods "quota-1-edljob-worker-0" is forbidden: violates PodSecurity "restricted:latest"'
    api.refusals = [(403, "Forbidden", words)]

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0))
        (status,) = await platform.nodes()
        assert (status.reason, status.message) == (EndReason.CANNOT_START, words)

    play(api, scenario, job_name="quota-1")


def test_however_many_wait_for_room_one_asks() -> None:
    api = Api()
    words = 'pods "x" is forbidden: exceeded quota: team'
    api.refusals = [(403, "Forbidden", words)] * 20

    async def scenario(platform: KubernetesPlatform) -> None:
        await asyncio.gather(*(platform.start(request(number)) for number in range(10)))
        while len(api.asked) < 30:
            await asyncio.sleep(0.01)

    play(api, scenario)
    names = [body["metadata"]["name"].rpartition("-")[2] for _, _, body in api.asked]
    first = names[10]
    # The first of them is refused ten times more, and when there is room for it there is for the others.
    assert names[10:] == [first] * 11 + [name for name in names[:10] if name != first]


def test_pods_that_are_counted_at_once_get_in_each_others_way() -> None:
    api = Api()
    api.refusals = [(409, "Conflict", "Operation cannot be fulfilled on resourcequotas: please try again")]

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0))
        while len(api.asked) < 2:
            await asyncio.sleep(0.01)
        assert [status.phase for status in await platform.nodes()] == [NodePhase.PENDING]

    play(api, scenario)


def event(reason: str, moment: str) -> dict[str, Any]:
    return {"metadata": {}, "reason": reason, "message": f"{reason} it is", "lastTimestamp": moment}


def test_reason_known_from_events_only_is_reported() -> None:
    api = Api(pod("scheduled", 3))
    api.events = [
        event("FailedMount", "2026-11-16T05:35:09Z"),
        event("FailedCreatePodSandBox", "2026-11-16T05:35:07Z"),
        event("MissingClusterDNS", "2026-11-16T05:35:12Z"),
        event("FailedScheduling", "2026-11-16T05:35:13Z"),
    ]

    async def scenario(platform: KubernetesPlatform) -> None:
        async for status in platform.events():
            if status.message:
                break
        assert (status.phase, status.message) == (NodePhase.PENDING, "FailedMount: FailedMount it is")
        # What is known stays known while it waits, and is over when it runs.
        api.news.put_nowait(("MODIFIED", pod("scheduled", 3)))
        api.news.put_nowait(("MODIFIED", pod("running", 3)))
        assert (await wait_for_phase(platform, "worker-3", NodePhase.RUNNING)).message == ""

    play(api, scenario)


def test_events_of_a_pod_are_listed_three_times_at_most() -> None:
    api = Api(*(pod("scheduled", number) for number in range(3)))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        while api.looks < 9:
            await asyncio.sleep(0.01)
        api.news.put_nowait(("MODIFIED", pod("scheduled", 0)))
        api.news.put_nowait(("MODIFIED", pod("running", 1)))
        await wait_for_phase(platform, "worker-1", NodePhase.RUNNING)

    play(api, scenario)
    assert api.looks == 9


def test_a_pod_that_kubernetes_does_not_take_cannot_start() -> None:
    api = Api()
    api.refusals = [(422, "Invalid", 'Pod "x" is invalid: spec.containers[0].image: Required value')]

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0))
        (status,) = await platform.nodes()
        assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.CANNOT_START)
        assert "image: Required value" in status.message

    play(api, scenario)


@pytest.mark.parametrize("other", ["running", "completed", "failed"])
def test_one_that_cannot_start_where_others_of_its_role_have_begun_has_met_a_bad_machine(other: str) -> None:
    api = Api(pod(other, 3), pod("scheduled", 4))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", pod("no-command", 4)))
        ended = await wait_for_phase(platform, "worker-4", NodePhase.FAILED)
        assert ended.reason is EndReason.KILLED
        assert ended.message.startswith("its machine cannot start it: failed to create containerd task")

    play(api, scenario)


def test_job_whose_first_server_cannot_start_fails() -> None:
    server = pod("running", 0)
    server["metadata"]["labels"]["elasticdl-replica-type"] = "ps"
    server["status"]["containerStatuses"][0]["name"] = "ps"
    api = Api(server, pod("scheduled", 3), pod("no-command", 4))

    async def scenario(platform: KubernetesPlatform) -> None:
        statuses = {status.name: status for status in await platform.nodes()}
        assert statuses["ps-0"].phase is NodePhase.RUNNING
        assert statuses["worker-4"].reason is EndReason.CANNOT_START

    play(api, scenario)


def test_image_error_stays_in_message_during_back_off() -> None:
    api = Api(pod("not-pulled", 3), pod("back-off", 4))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("MODIFIED", pod("back-off", 3)))
        api.news.put_nowait(("MODIFIED", pod("running", 4)))
        await wait_for_phase(platform, "worker-4", NodePhase.RUNNING)
        words = {status.name: status.message for status in await platform.nodes()}["worker-3"]
        assert words.startswith("ErrImagePull: rpc error")
        api.news.put_nowait(("MODIFIED", pod("running", 3)))
        assert (await wait_for_phase(platform, "worker-3", NodePhase.RUNNING)).message == ""

    play(api, scenario)


def test_one_that_is_there_already_is_ours() -> None:
    api = Api()
    api.refusals = [(409, "AlreadyExists", "there")]

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        # Made after the list, by the master before this one.
        api.pods = [owned(pod("running", 0), "1")]
        await platform.start(request(0))
        (status,) = await platform.nodes()
        assert (status.phase, status.message) == (NodePhase.PENDING, "")

    play(api, scenario)
    assert len(made(api)) == 1


def test_pod_of_earlier_job_is_ignored_until_its_name_is_free() -> None:
    api = Api(owned(pod("completed", 0), "of another record"), owned(pod("running", 1), "1"))
    api.refusals = [(409, "AlreadyExists", "there")] * 2

    async def scenario(platform: KubernetesPlatform) -> None:
        assert [status.name for status in await platform.nodes()] == ["worker-1"]
        await platform.start(request(0))
        waiting = {status.name: status for status in await platform.nodes()}["worker-0"]
        assert (waiting.phase, waiting.message) == (NodePhase.PENDING, "there")
        api.news.put_nowait(("DELETED", api.pods[0]))
        while len(made(api)) < 3:
            await asyncio.sleep(0.01)
        api.news.put_nowait(("ADDED", owned(pod("running", 0), "1")))
        await wait_for_phase(platform, "worker-0", NodePhase.RUNNING)

    play(api, scenario)


@pytest.mark.parametrize(("pod_ip", "bind"), [("10.1.0.7", "0.0.0.0"), ("fd00::7", "::"), ("", "0.0.0.0")])
def test_servers_listen_at_addresses_of_the_kind_that_pods_have(pod_ip: str, bind: str) -> None:
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0, "ps"))

    definition: dict[str, Any] = {
        "job_command": None,
        "model_zoo": "z",
        "model_def": "a.b.c",
        "training_data": "d",
    }
    play(api, scenario, pod_ip=pod_ip, **definition, num_ps=1)
    variables = api.asked[-1][2]["spec"]["containers"][0]["env"]
    assert {"name": "ELASTICDL_BIND", "value": bind} in variables


def test_servers_have_their_room_before_workers() -> None:
    """Though their addresses take a call more: where room is short they would take that of workers otherwise."""
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        nodes = [request(0, "ps", place=0), request(1, "ps", place=1), request(0), request(1)]
        await asyncio.gather(*(platform.start(each) for each in nodes))

    play(api, scenario, **SERVERS)
    pods = [body["metadata"]["name"] for _, path, body in api.asked if path.endswith("/pods")]
    assert sorted(pods[:2]) == ["elasticdl-rec-ps-0", "elasticdl-rec-ps-1"]
    assert len(pods) == 4


def test_workers_do_not_wait_for_servers_that_cannot_be_made() -> None:
    api = Api()
    api.services_of_others = 10**9

    async def scenario(platform: KubernetesPlatform) -> None:
        await asyncio.gather(platform.start(request(0, "ps", place=0)), platform.start(request(0)))

    play(api, scenario, **SERVERS)
    assert any(
        "worker-0" in body["metadata"]["name"] for _, path, body in api.asked if path.endswith("/pods")
    )


def test_service_of_place_selects_its_present_node() -> None:
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0, "ps", place=0))
        await platform.start(request(1, "ps", place=0))

    play(api, scenario, job_command=None, model_zoo="z", model_def="a.b.c", training_data="d", num_ps=1)
    services = [(path.rpartition("/")[2], body) for _, path, body in api.asked if "/services" in path]
    assert [name for name, _ in services] == ["elasticdl-rec-ps-0"] * 2
    assert [body["spec"]["selector"]["elasticdl-replica-index"] for _, body in services] == ["0", "1"]
    variables = [
        {v["name"]: v.get("value") for v in body["spec"]["containers"][0]["env"]}
        for _, path, body in api.asked
        if path.endswith("/pods")
    ]
    assert [v["ELASTICDL_ADVERTISE"] for v in variables] == ["10.0.0.1:50010", "10.0.0.3:50010"]


def test_pods_without_list_permission_raise() -> None:
    class Closed(Api):
        async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            text = b'{"message": "cannot list pods"}'
            writer.write(
                b"HTTP/1.1 403 W\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(text) + text
            )
            await writer.drain()
            writer.close()

    async def scenario(platform: KubernetesPlatform) -> None:
        with pytest.raises(ClusterError, match="cannot list pods"):
            await platform.nodes()

    play(Closed(), scenario)


def made(api: Api) -> list[str]:
    """Pods."""
    return [b["metadata"]["name"] for method, p, b in api.asked if method == "POST" and p.endswith("/pods")]


def test_a_place_of_a_program_leads_to_its_replacement_also_after_a_new_master() -> None:
    """A master that has not assigned the addresses itself: they are in its journal."""
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(1, "ps", place=0))
        await platform.start(request(4, "worker", place=2))

    play(api, scenario, num_ps=1)
    services = [(method, p.rpartition("/")[2], body) for method, p, body in api.asked if "/services" in p]
    assert [(method, name) for method, name, _ in services] == [
        ("PATCH", "rec-edljob-ps-0"),
        ("PATCH", "rec-edljob-worker-2"),
    ]
    assert [b["spec"]["selector"]["elasticdl-replica-index"] for _, _, b in services] == ["1", "4"]


def test_node_waits_for_service_of_earlier_job_to_go() -> None:
    """Its services go after its record, and with them their addresses."""
    api = Api()
    api.services_of_others = 2

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0, "ps", place=0))
        (waiting,) = await platform.nodes()
        assert waiting.phase is NodePhase.PENDING
        assert waiting.message == "Service elasticdl-rec-ps-0 is of a job that had this name before."
        while not made(api):
            await asyncio.sleep(0.01)

    play(api, scenario, **SERVERS)
    variables = api.asked[-1][2]["spec"]["containers"][0]["env"]
    # Of the third.
    assert {"name": "ELASTICDL_ADVERTISE", "value": "10.0.0.3:50010"} in variables


def test_addresses_replace_services_of_an_earlier_job() -> None:
    api = Api()
    api.services_of_others = 1

    async def scenario(platform: KubernetesPlatform) -> None:
        assert await platform.addresses({"ps": 1}) == {"ps": ["10.0.0.2:50010"]}

    play(api, scenario, num_ps=1)


def test_addresses_report_a_service_that_is_never_removed() -> None:
    """Without its nodes' addresses the job is not listed yet: it could be neither stopped nor deleted."""
    api = Api()
    api.services_of_others = 10**6
    now = [0.0]

    async def scenario(platform: KubernetesPlatform) -> None:
        asking = asyncio.ensure_future(platform.addresses({"ps": 1}))
        while len(api.asked) < 2:
            await asyncio.sleep(0.01)
        now[0] = REMOVAL_SECONDS
        with pytest.raises(
            UserError, match="Service rec-edljob-ps-0 is of a job that had this name"
        ) as raised:
            await asking
        assert "`kubectl describe service rec-edljob-ps-0 --namespace=lab`" in raised.value.hint

    play(api, scenario, num_ps=1, clock=lambda: now[0])


def test_nodes_that_need_no_address_get_none() -> None:
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(0))
        assert await platform.addresses({"worker": 1}) == {}

    play(api, scenario)
    assert not [path for _, path, _ in api.asked if "/services" in path]


def test_service_created_concurrently_does_not_block_its_pod() -> None:
    api = Api()
    api.missing = {"PATCH": 1}
    api.refusals = [(409, "AlreadyExists", "services there")]

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(1, "ps", place=0))

    play(api, scenario, num_ps=1)
    methods = [method for method, path, _ in api.asked if "/services" in path]
    assert methods == ["PATCH", "POST", "PATCH"]
    assert made(api) == ["rec-edljob-ps-1"]


def test_addresses_are_waited_for_whatever_is_wrong_inside_the_cluster() -> None:
    """No node can start without them, and no user watches who could act on an error."""
    api = Api()
    api.missing = {"PATCH": 1}
    api.refusals = [(500, "InternalError", "failed calling webhook")] * 5

    async def scenario(platform: KubernetesPlatform) -> None:
        assert await platform.addresses({"ps": 1}) == {"ps": ["10.0.0.7:50010"]}

    play(api, scenario, num_ps=1)


@pytest.mark.parametrize("deletion_first", [True, False])
def test_a_node_that_is_stopped_while_its_pod_is_being_made(deletion_first: bool) -> None:
    """The deletion finds nothing; whichever of the two answers comes first."""
    api = Api()

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.open.clear()
        api.missing = {"PATCH": 1, "DELETE": 1}
        starting = asyncio.ensure_future(platform.start(request(0)))
        while not api.asked:
            await asyncio.sleep(0.01)
        if deletion_first:
            await platform.stop("worker-0", grace_seconds=5)
            api.open.set()
            await starting
        else:
            delete = platform._cluster.delete

            async def late(*words: Any, **options: Any) -> Any:
                answer = await delete(*words, **options)
                api.open.set()
                await starting
                return answer

            platform._cluster.delete = late  # type: ignore[method-assign]
            await platform.stop("worker-0", grace_seconds=5)
        (status,) = await platform.nodes()
        assert (status.phase, status.reason) == (NodePhase.FAILED, EndReason.STOPPED)

    play(api, scenario)
    changes = [(method, p.rpartition("/")[2]) for method, p, _ in api.asked if method in ("POST", "DELETE")]
    assert changes == [
        ("POST", "pods"),
        ("DELETE", "rec-edljob-worker-0"),
        ("DELETE", "rec-edljob-worker-0"),
    ]


def test_node_stopped_before_its_pod_exists_is_not_created() -> None:
    api = Api()
    api.missing = {"PATCH": 2, "DELETE": 1}

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.open.clear()
        starting = asyncio.ensure_future(platform.start(request(0, place=0)))
        while [method for method, _, _ in api.asked] != ["PATCH", "POST"]:
            await asyncio.sleep(0.01)
        await platform.stop("worker-0", grace_seconds=5)
        api.open.set()
        await starting

    play(api, scenario, num_ps=1)
    assert made(api) == []


def test_failing_webhook_is_reported_and_retried() -> None:
    api = Api()
    words = 'Internal error occurred: failed calling webhook "policy.example.com": no endpoints available'
    api.refusals = [(500, "InternalError", words)] * 8

    async def scenario(platform: KubernetesPlatform) -> None:
        starting = asyncio.ensure_future(platform.start(request(0)))
        async for status in platform.events():
            if status.message:
                break
        assert (status.phase, status.message) == (NodePhase.PENDING, words)
        await starting
        while len(api.asked) < 9:
            await asyncio.sleep(0.01)
        api.news.put_nowait(("ADDED", pod("running", 0)))
        assert (await wait_for_phase(platform, "worker-0", NodePhase.RUNNING)).message == ""

    play(api, scenario)


def test_a_stop_of_ours_needs_no_notice_and_leaves_the_whole_grace_after_the_signal() -> None:
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.stop("worker-3", grace_seconds=10)

    play(api, scenario)
    (first, sign), (second, options) = [(method, body) for method, _, body in api.asked]
    assert (first, second) == ("PATCH", "DELETE")
    assert sign == NO_NOTICE
    # Where a kubelet does not bring the sign in time.
    assert options["gracePeriodSeconds"] == NOTICE_SECONDS + 10


def test_after_a_short_notice_the_whole_grace_comes_sooner() -> None:
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.stop("worker-3", grace_seconds=10)

    play(api, scenario, cluster_spec_json='{"worker_spec": {"terminationGracePeriodSeconds": 8}}')
    assert api.asked[-1][2]["gracePeriodSeconds"] == 4 + 10


def test_immediate_stop_deletes_pod_without_notice() -> None:
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.stop("worker-3", grace_seconds=0)

    play(api, scenario)
    ((method, _, options),) = api.asked
    assert (method, options["gracePeriodSeconds"]) == ("DELETE", 1)


def out_of_memory(number: int, limit: str | None) -> dict[str, Any]:
    document = pod("out-of-memory", number)
    limits = {"limits": {"memory": limit}} if limit else {}
    proxy = {"name": "istio-proxy", "resources": {"limits": {"memory": "1Mi"}}}
    document["spec"]["containers"] = [proxy, {"name": "worker", "resources": limits}]
    return document


@pytest.mark.parametrize(
    ("limit", "more", "words"),
    [
        ("50Mi", True, "it used more memory than it may (50Mi); the next one gets more"),
        ("157286400", False, "killed at its limit of 157286400; raise --worker_resource_limit"),
        (None, False, "it has no limit"),
    ],
)
def test_whether_there_is_more_memory_for_the_next_one(limit: str | None, more: bool, words: str) -> None:
    api = Api(out_of_memory(3, limit))

    async def scenario(platform: KubernetesPlatform) -> None:
        (status,) = await platform.nodes()
        assert (status.reason, status.gets_more_memory) == (EndReason.OUT_OF_MEMORY, more)
        assert words in status.message

    play(api, scenario, worker_resource_request="memory=50Mi", worker_resource_limit="memory=150Mi")


def test_only_the_very_pod_that_was_seen_is_stopped() -> None:
    running = pod("running", 3)
    api = Api(running)

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.stop("worker-3", grace_seconds=0)

    play(api, scenario)
    ((_, _, options),) = api.asked
    assert options["preconditions"] == {"uid": running["metadata"]["uid"]}


def test_superseded_master_deletes_no_pod() -> None:
    """Asked before each attempt: it may have been cut off, and replaced, since the one before."""
    api = Api(pod("running", 3))
    api.forbidden = {"DELETE": 10**6}
    looks = []

    async def before_changes() -> None:
        looks.append(len(api.asked))
        if len(looks) == 3:
            raise UserError("There is another master.")

    async def scenario(platform: KubernetesPlatform) -> None:
        with pytest.raises(UserError, match="another master"):
            await platform.stop("worker-3", grace_seconds=0)

    play(api, scenario, before_changes=before_changes, clock=lambda: 0.0)
    assert looks == [0, 1, 2]


SERVERS: dict[str, Any] = {
    "job_command": None,
    "model_zoo": "z",
    "model_def": "a.b.c",
    "training_data": "d",
    "num_ps": 1,
}


@pytest.mark.parametrize(("role", "flags"), [("worker", {}), ("ps", SERVERS)])
def test_replaced_master_creates_no_pod_or_service(role: str, flags: dict[str, Any]) -> None:
    """What it takes for missing may be at work for the next master, and a place be led to by it."""
    api = Api()

    async def before_changes() -> None:
        raise UserError("There is another master.")

    async def scenario(platform: KubernetesPlatform) -> None:
        with pytest.raises(UserError, match="another master"):
            await platform.start(request(1, role))

    play(api, scenario, before_changes=before_changes, **flags)
    assert api.asked == []


def test_replaced_master_does_not_repeat_a_creation() -> None:
    api = Api()
    api.refusals = [(503, "ServiceUnavailable", "no endpoints")] * 100
    looks = []

    async def before_changes() -> None:
        looks.append(len(made(api)))
        if len(looks) == 3:
            raise UserError("There is another master.")

    async def scenario(platform: KubernetesPlatform) -> None:
        with pytest.raises(UserError, match="another master"):
            await platform.start(request(1))

    play(api, scenario, before_changes=before_changes, settings={"attempt_seconds": 0.0})
    assert looks == [0, 1, 2]


def test_a_server_that_wants_to_be_left_alone_for_longer_than_an_attempt_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float | None] = []

    class Noted(Pauses):
        async def wait(self, at_least: float | None = None) -> bool:
            waits.append(at_least)
            return True

    monkeypatch.setattr(fenced_changes, "Pauses", Noted)
    api = Api()
    api.headers = "Retry-After: 30\r\n"
    api.refusals = [(429, "TooManyRequests", "the server has received too many requests")] * 2

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.start(request(1))

    play(api, scenario)
    assert (waits, len(made(api))) == ([30.0, 30.0], 3)


def test_concurrent_pod_creations_check_master_once() -> None:
    api = Api()
    looks = []

    async def before_changes() -> None:
        looks.append(len(made(api)))
        await asyncio.sleep(0)

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        await asyncio.gather(*(platform.start(request(number)) for number in range(30)))

    play(api, scenario, before_changes=before_changes)
    assert (looks, len(made(api))) == ([0], 30)


def test_start_of_a_known_node_repeats_its_status() -> None:
    api = Api(pod("running", 3))

    async def scenario(platform: KubernetesPlatform) -> None:
        events = platform.events()
        first = await events.__anext__()
        await platform.start(request(3))
        assert await events.__anext__() == first

    play(api, scenario)
    assert made(api) == []


def test_a_job_that_is_preempted_for_weeks_does_not_grow() -> None:
    # Ended, but its pod is there.
    api = Api(pod("completed", 0))

    async def scenario(platform: KubernetesPlatform) -> None:
        events = platform.events()
        assert (await events.__anext__()).name == "worker-0"
        for number in range(1, 30):
            for kind, name in (("ADDED", "scheduled"), ("MODIFIED", "running"), ("DELETED", "running")):
                api.news.put_nowait((kind, pod(name, number)))
            async for status in events:
                if (status.name, status.phase) == (f"worker-{number}", NodePhase.FAILED):
                    break
        kept = {f"worker-{number}" for number in (0, 27, 28, 29)}
        assert {status.name for status in await platform.nodes()} == kept
        by_node = (platform._warnings, platform._event_readers, platform._timers)
        assert platform._table.names().union(*by_node) <= kept

    play(api, scenario, settings={"ended_kept": 3})


def test_pods_that_a_cluster_leaves_behind_do_not_pile_up() -> None:
    """Those of programs that ended by themselves stay: there are never many."""
    api = Api(pod("failed", 0), pod("completed", 1), pod("deleted", 2))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        api.news.put_nowait(("DELETED", pod("deleted", 2)))
        for number in range(3, 10):
            evicted = pod("running", number)
            evicted["metadata"]["uid"] = f"uid-{number}"
            evicted["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
            api.news.put_nowait(("ADDED", evicted))
        while len(api.asked) < 4:
            await asyncio.sleep(0.01)

    play(api, scenario, settings={"pods_kept": 3})
    removed = [(p.rpartition("-")[2], o["preconditions"]["uid"]) for _, p, o in api.asked]
    assert removed == [(str(number), f"uid-{number}") for number in range(3, 7)]


def test_ended_node_is_kept_until_its_event_is_delivered() -> None:
    api = Api(*(pod("running", number) for number in range(5)))

    async def scenario(platform: KubernetesPlatform) -> None:
        await platform.nodes()
        for number in range(5):
            api.news.put_nowait(("DELETED", pod("running", number)))
        while {status.phase for status in await platform.nodes()} != {NodePhase.FAILED}:
            await asyncio.sleep(0.01)
        assert len(await platform.nodes()) == 5
        events = platform.events()
        assert {(await events.__anext__()).name for _ in range(5)} == {f"worker-{n}" for n in range(5)}

    play(api, scenario, settings={"ended_kept": 1})
