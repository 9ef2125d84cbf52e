"""One node of a cluster of our own: a containerd and a kubelet that share nothing with the other nodes but the machine.

Each node has a mount namespace of its own, in which it has
- its own /var/log/pods, for a kubelet removes there the logs of all pods that it does not know, and its own folders for
  what containers and their networks are known by, so that nothing of them is left when the node is gone;
- its own /sys/devices/system, which tells the CPUs that the scheduler is to count with. There may be more than the
  machine has: room for nine pods of two CPUs fits on a laptop, as long as the pods do not all compute at once.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from e2e.cluster.commands import Word

NODE_IP = "198.18.0.1"
POD_NETWORK = "198.18.0.0/16"
_OWN_FOLDERS = ("/var/log/pods", "/var/log/containers", "/run/containerd", "/run/netns")


def number_of(node: str) -> int:
    return int(node.rpartition("-")[2])


def prepare(here: Path, *, cgroup: str, pki: Path, pause: str, cpus: int) -> None:
    """Writes what the two programs of the node in the folder `here` read."""
    number = number_of(here.name)
    (here / "cni").mkdir(parents=True, exist_ok=True)
    (here / "containerd.toml").write_text(_containerd_settings(here, pause))
    (here / "cni/10-bridge.conflist").write_text(json.dumps(_network_settings(here, number)))
    (here / "kubelet.yaml").write_text(json.dumps(_kubelet_settings(here.name, number, cgroup, pki)))
    binds = [(here / f"own{place}", place) for place in _OWN_FOLDERS]
    for own, place in binds:
        own.mkdir(parents=True, exist_ok=True)
        Path(place).mkdir(exist_ok=True)
    if cpus:
        _write_system(here / "system", cpus)
        binds += [(here / "system" / part, f"/sys/devices/system/{part}") for part in ("cpu", "node")]
    mounts = [f"mount --bind '{own}' {place}" for own, place in binds]
    (here / "enter.sh").write_text("\n".join(["set -e", *mounts, 'exec "$@"', ""]))
    _make_cgroups(cgroup)


def containerd(here: Path) -> list[Word]:
    """Begins the node's mount namespace; mounts of the machine are seen in it, and not the other way round."""
    unshare = ("unshare", "--mount", "--propagation", "slave", "sh", here / "enter.sh")
    return [*unshare, "containerd", "-c", here / "containerd.toml"]


def kubelet(here: Path, *, program: Path, kubeconfig: Path, containerd_pid: int) -> list[Word]:
    return [
        *("nsenter", f"--mount=/proc/{containerd_pid}/ns/mnt", program),
        *("--config", here / "kubelet.yaml", "--kubeconfig", kubeconfig, "--root-dir", here / "kubelet"),
        *("--container-runtime=remote", f"--container-runtime-endpoint=unix://{here}/containerd.sock"),
        *(f"--hostname-override={here.name}", f"--node-ip={NODE_IP}"),
    ]


def remove_cgroups(cgroup: str) -> None:
    for controller in _cgroups():
        # From the leaves up; groups of containers that are just ending vanish meanwhile.
        for inner, _, _ in os.walk(controller / cgroup, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(inner)


def _containerd_settings(here: Path, pause: str) -> str:
    return f"""
version = 2
root = "{here}/containerd"
state = "{here}/state"
[grpc]
  address = "{here}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  stream_server_port = "0"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{here}/cni"
"""


def _network_settings(here: Path, number: int) -> dict[str, object]:
    """All nodes are on one bridge, each with a range of addresses of its own."""
    part = f"198.18.{number + 1}"
    addresses = {
        "subnet": POD_NETWORK,
        "rangeStart": f"{part}.1",
        "rangeEnd": f"{part}.254",
        "gateway": NODE_IP,
    }
    ipam = {
        "type": "host-local",
        "dataDir": str(here / "ipam"),
        "ranges": [[addresses]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "hairpinMode": True, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": here.name, "plugins": [bridge]}


def _kubelet_settings(node: str, number: int, cgroup: str, pki: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": 10250 + 10 * number,
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failSwapOn": False,
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "3s",
        # Never: there is no registry to get an image from again.
        "imageGCHighThresholdPercent": 100,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "tlsCertFile": f"{pki}/{node}.crt",
        "tlsPrivateKeyFile": f"{pki}/{node}.key",
    }


def _write_system(folder: Path, cpus: int) -> None:
    """As much of /sys/devices/system as a kubelet looks at to count CPUs: one socket, one thread a core."""
    for place in (folder / "cpu", folder / "node/node0"):
        for number in range(cpus):
            topology = place / f"cpu{number}/topology"
            topology.mkdir(parents=True, exist_ok=True)
            (topology / "core_id").write_text(f"{number}\n")
            (topology / "physical_package_id").write_text("0\n")
            (topology.parent / "online").write_text("1\n")
    (folder / "cpu/online").write_text(f"0-{cpus - 1}\n")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    (folder / "node/node0/meminfo").write_text(f"Node 0 MemTotal: {memory} kB\n")
    (folder / "node/node0/hugepages").mkdir(exist_ok=True)


def _cgroups() -> list[Path]:
    """The controllers' folders of cgroup v1, or the whole tree of v2."""
    top = Path("/sys/fs/cgroup")
    if (top / "cgroup.controllers").exists():
        return [top]
    return [path for path in top.iterdir() if path.is_dir()]


def _make_cgroups(cgroup: str) -> None:
    """The kubelet expects its root to be there."""
    for controller in _cgroups():
        group = controller / cgroup
        group.mkdir(exist_ok=True)
        for inherited in ("cpuset.cpus", "cpuset.mems"):
            # With cgroup v2 an empty one means the same as above it.
            if (group / inherited).exists() and (controller / inherited).exists():
                (group / inherited).write_text((controller / inherited).read_text())
