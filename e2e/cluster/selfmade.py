"""A cluster of real parts on one machine: etcd, the API server, the controller manager, the scheduler, the proxy, and
for every node a containerd and a kubelet that share nothing with the other nodes but the machine.

It needs Debian and root. It has no DNS and no registry: images are given to its nodes. All addresses are of the range
that is reserved for testing networks. What runs is written down in a folder, so that any process may go on with
a cluster that another one started.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import nodes
from e2e.cluster.certificates import write_certificates
from e2e.cluster.commands import Word, run, succeeds, wait_for
from e2e.cluster.nodes import NODE_IP, POD_NETWORK, number_of
from e2e.cluster.processes import Processes
from e2e.cluster.programs import PAUSE, provide

SERVICE_NETWORK = "198.19.0.0/16"
API_SERVICE_IP = "198.19.0.1"
# Far beyond what a loaded machine needs: it ends what hangs.
_SECONDS = 180.0
_LINES_SHOWN = 15
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, kw_only=True)
class SelfMade:
    """`run_name`: of the folder of what runs; two clusters of one home share the programs."""

    home: Path
    network: str
    run_name: str = "run"

    @classmethod
    def here(cls) -> SelfMade:
        home = os.environ.get("KUBE_HOME") or Path.home() / ".cache" / "test-kubernetes"
        return cls(home=Path(home), network=os.environ.get("KUBE_NETNS", "test-kubernetes"))

    # -- what every cluster can do --------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> str:
        return str(self._run / "admin.kubeconfig")

    def load(self, archive: Path) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: self._load_on(node, archive), self.nodes()))

    def enter(self) -> None:
        """From now on this process and all that it starts are in the cluster's network, and nowhere else."""
        with open(f"/run/netns/{self.network}") as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the cluster's network")

    def stop_node(self, node: str) -> None:
        """As a power cut would."""
        self._processes.kill(f"kubelet-{number_of(node)}")
        self._processes.kill(f"containerd-{number_of(node)}")
        self._processes.kill_containers(node)

    def start_node(self, node: str) -> None:
        self._start_node(node)

    def stop_api_server(self) -> None:
        """Has no supervisor that restarts it."""
        self.stop_part("apiserver")

    def start_api_server(self) -> None:
        self.start_part("apiserver")
        self._wait("the API server", "get", "--raw", "/readyz")

    # -- beyond ---------------------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self._processes.runs("apiserver")

    def nodes(self) -> list[str]:
        return sorted(path.name for path in self._run.glob("node-*") if path.is_dir())

    def inside(self, *command: Word) -> list[str]:
        return self._processes.inside(*command)

    def stop_part(self, name: str) -> None:
        """A part of the control plane: etcd, apiserver, controller-manager, scheduler, proxy."""
        self._processes.kill(name)

    def start_part(self, name: str) -> None:
        self._processes.start(name, self._parts()[name], restarts=True)

    def up(self, *, size: int, cpus: int = 0) -> None:
        """`cpus`: what every node says it has; 0 for what the machine has."""
        self.down()
        provide(self.home)
        self._run.mkdir(parents=True)
        names = [f"node-{number}" for number in range(size)]
        (self._run / "cpus").write_text(str(cpus))
        self._make_network()
        addresses = ["127.0.0.1", NODE_IP, API_SERVICE_IP]
        write_certificates(self._run, server="https://127.0.0.1:6443", addresses=addresses, nodes=names)
        for part in ("etcd", "apiserver"):
            self.start_part(part)
        # A node needs nothing of the others to begin with.
        for node in names:
            self._start_node(node)
        self._wait("the API server", "get", "--raw", "/readyz")
        for part in ("controller-manager", "scheduler", "proxy"):
            self.start_part(part)
        self._wait(
            "the nodes", "wait", "--for=condition=Ready", "--timeout=1s", *(f"node/{node}" for node in names)
        )
        self._wait("the default service account", "get", "serviceaccount", "default")

    def up_api_server(self) -> None:
        """etcd and the API server alone: nothing acts but its callers, and pods stay as they are written. Without
        controllers, no service account has a token, so pods need none.
        """
        self.down()
        provide(self.home)
        self._run.mkdir(parents=True)
        self._make_network()
        write_certificates(
            self._run, server="https://127.0.0.1:6443", addresses=["127.0.0.1", API_SERVICE_IP], nodes=[]
        )
        self.start_part("etcd")
        words = [*self._parts()["apiserver"], "--disable-admission-plugins=ServiceAccount"]
        self._processes.start("apiserver", words, restarts=True)
        self._wait("the API server", "get", "--raw", "/readyz")

    def tell_logs(self) -> None:
        """What its parts said last, before it is taken down with their logs."""
        for log in sorted(self._run.glob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-_LINES_SHOWN:]
            print("\n".join([f"--- {log.name}", *(line[:500] for line in lines)]), flush=True)

    def down(self) -> None:
        if not self._run.exists():
            return
        for node in self.nodes():
            self.stop_node(node)
        for part in self._parts():
            self._processes.kill(part)
        self._processes.kill_all_inside()
        for node in self.nodes():
            nodes.remove_cgroups(self._cgroup(node))
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (point := line.split()[1]).startswith(f"{self._run}/"):
                succeeds("umount", "-l", point)
        if self._network_exists:
            run("ip", "netns", "delete", self.network)
        shutil.rmtree(self._run, ignore_errors=True)

    # -- parts ----------------------------------------------------------------------------------------------

    @property
    def _run(self) -> Path:
        return self.home / self.run_name

    @property
    def _bin(self) -> Path:
        return self.home / "bin"

    @property
    def _network_exists(self) -> bool:
        return Path("/run/netns", self.network).exists()

    def _cgroup(self, node: str) -> str:
        return f"{self.network}-{node}"

    @property
    def _processes(self) -> Processes:
        return Processes(folder=self._run, network=self.network)

    def _wait(self, what: str, *words: str) -> None:
        kubectl = self.inside("kubectl", f"--kubeconfig={self.kubeconfig}", *words)
        wait_for(what, lambda: succeeds(*kubectl), seconds=_SECONDS, hint=f"Logs are in {self._run}.")

    def _make_network(self) -> None:
        if not self._network_exists:
            run("ip", "netns", "add", self.network)
        for command in ("ip link add cni0 type bridge", f"ip address add {NODE_IP}/16 dev cni0"):
            run(*self.inside(*command.split()))
        for command in (
            "ip link set lo up",
            "ip link set cni0 up",
            "ip route replace default dev cni0",
            "sysctl -qw net.ipv4.ip_forward=1",
        ):
            run(*self.inside(*command.split()))
        # A part of some kernels, a module of others. Without it pods of one node do not reach each other by services.
        succeeds("sh", "-c", "modprobe br_netfilter")
        succeeds(*self.inside("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=1"))

    def _parts(self) -> dict[str, list[Word]]:
        """The control plane, in the order of its start. What has gone is noticed in seconds, not in minutes."""
        pki = self._run / "pki"
        etcd = "http://127.0.0.1:2379"
        return {
            "etcd": [
                *("etcd", "--data-dir", self._run / "etcd", "--unsafe-no-fsync"),
                *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
                *("--listen-peer-urls", "http://127.0.0.1:2380"),
            ],
            "apiserver": [
                self._bin / "kube-apiserver",
                f"--etcd-servers={etcd}",
                f"--service-cluster-ip-range={SERVICE_NETWORK}",
                f"--advertise-address={NODE_IP}",
                "--secure-port=6443",
                "--insecure-port=0",
                f"--client-ca-file={pki}/ca.crt",
                f"--tls-cert-file={pki}/apiserver.crt",
                f"--tls-private-key-file={pki}/apiserver.key",
                f"--service-account-key-file={pki}/sa.pub",
                f"--service-account-signing-key-file={pki}/sa.key",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction,Priority",
                "--default-not-ready-toleration-seconds=5",
                "--default-unreachable-toleration-seconds=5",
                "--allow-privileged",
                "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-client-certificate={pki}/admin.crt",
                f"--kubelet-client-key={pki}/admin.key",
                f"--requestheader-client-ca-file={pki}/ca.crt",
            ],
            "controller-manager": [
                self._bin / "kube-controller-manager",
                f"--kubeconfig={self._run}/controller-manager.kubeconfig",
                f"--service-account-private-key-file={pki}/sa.key",
                f"--root-ca-file={pki}/ca.crt",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--node-monitor-grace-period=12s",
                "--node-monitor-period=2s",
                "--pod-eviction-timeout=5s",
            ],
            "scheduler": [
                self._bin / "kube-scheduler",
                f"--kubeconfig={self._run}/scheduler.kubeconfig",
                "--leader-elect=false",
            ],
            "proxy": [
                self._bin / "kube-proxy",
                f"--kubeconfig={self._run}/proxy.kubeconfig",
                "--hostname-override=node-0",
                f"--cluster-cidr={POD_NETWORK}",
                "--proxy-mode=iptables",
                "--conntrack-max-per-core=0",
            ],
        }

    # -- nodes ----------------------------------------------------------------------------------------------

    def _start_node(self, node: str) -> None:
        here = self._run / node
        kept = self._run / "cpus"
        cpus = int(kept.read_text()) if kept.exists() else 0
        nodes.prepare(here, cgroup=self._cgroup(node), pki=self._run / "pki", pause=PAUSE, cpus=cpus)
        pid = self._processes.start(f"containerd-{number_of(node)}", nodes.containerd(here))
        answers = ("ctr", "-a", here / "containerd.sock", "version")
        wait_for(
            f"containerd of {node}",
            lambda: succeeds(*answers),
            seconds=_SECONDS,
            hint=f"Logs are in {self._run}.",
        )
        self._load_on(node, self._bin / "pause.tar")
        kubeconfig = self._run / f"{node}.kubeconfig"
        kubelet = nodes.kubelet(
            here, program=self._bin / "kubelet", kubeconfig=kubeconfig, containerd_pid=pid
        )
        self._processes.start(f"kubelet-{number_of(node)}", kubelet)

    def _load_on(self, node: str, archive: Path) -> None:
        ctr = ("ctr", "-a", self._run / node / "containerd.sock", "-n", "k8s.io")
        run(*ctr, "images", "import", "--all-platforms", archive, stdout=subprocess.DEVNULL)
