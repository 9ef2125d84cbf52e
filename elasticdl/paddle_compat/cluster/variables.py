"""The variables of the guide's Job: read, checked, and explained where one is missing or wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.paddle_compat.cluster.arguments import shortened, whole_number

# The values that the guide gives.
GUIDE = {
    "JOB_NAME": "paddle-cluster-job",
    "JOB_PATH": "/home/jobpath",
    "JOB_NAMESPACE": "default",
    "TRAIN_CONFIG_DIR": "recommendation",
    "CONF_PADDLE_NIC": "eth0",
    "CONF_PADDLE_PORT": "7164",
    "CONF_PADDLE_PORTS_NUM": "2",
    "CONF_PADDLE_PORTS_NUM_SPARSE": "2",
    "CONF_PADDLE_GRADIENT_NUM": "3",
}
_OPTIONAL = {"JOB_NAMESPACE"}
_LEAST = {
    "CONF_PADDLE_PORT": 1,
    "CONF_PADDLE_PORTS_NUM": 1,
    "CONF_PADDLE_PORTS_NUM_SPARSE": 0,
    "CONF_PADDLE_GRADIENT_NUM": 1,
}
_LAST_PORT = 65535
# Ports of a node above those of its parameter servers: the trainer's, and the rendezvous of the trainers.
_PORTS_BEHIND = 2


@dataclass(frozen=True, kw_only=True)
class Variables:
    """The variables in the `env` of a Job of the guide."""

    job_name: str
    job_path: Path
    namespace: str
    config_dir: str
    nic: str
    port: int
    ports_num: int
    ports_num_sparse: int
    gradient_num: int

    @property
    def job_folder(self) -> Path:
        return self.job_path / self.job_name

    @property
    def output(self) -> Path:
        return self.job_folder / "output"

    @property
    def config_folder(self) -> Path:
        return self.job_folder / self.config_dir

    def data_folder(self, number: int) -> Path:
        return self.job_folder / str(number) / "data"

    @property
    def ports(self) -> range:
        """Returns the ports that a node needs: dense, sparse (reserved; Paddle 2.6 serves both on one), and the
        trainer's.
        """
        return range(self.port, self.port + self.ports_num + self.ports_num_sparse + _PORTS_BEHIND)

    @property
    def trainer_port(self) -> int:
        return self.ports[-2]

    @property
    def rendezvous_port(self) -> int:
        return self.ports[-1]


def read_variables(environment: Mapping[str, str] | None = None) -> Variables:
    """Raises one `UserError` that names every variable that is missing or wrong."""
    given = os.environ if environment is None else environment
    wrong = []
    for name, value in GUIDE.items():
        text = given.get(name, "")
        if not text and name not in _OPTIONAL:
            wrong.append(f"{name} is not set (the guide: {value})")
        elif name in _LEAST and ((number := whole_number(text)) is None or number < _LEAST[name]):
            wrong.append(
                f"{name} must be a whole number of at least {_LEAST[name]}, not {shortened(text)} (the guide: {value})"
            )
    if wrong:
        raise UserError("; ".join(wrong) + ".", hint="Set it under `env` of the container in the Job's YAML.")
    variables = Variables(
        job_name=given["JOB_NAME"],
        job_path=Path(given["JOB_PATH"]),
        namespace=given.get("JOB_NAMESPACE", ""),
        config_dir=given["TRAIN_CONFIG_DIR"],
        nic=given["CONF_PADDLE_NIC"],
        port=int(given["CONF_PADDLE_PORT"]),
        ports_num=int(given["CONF_PADDLE_PORTS_NUM"]),
        ports_num_sparse=int(given["CONF_PADDLE_PORTS_NUM_SPARSE"]),
        gradient_num=int(given["CONF_PADDLE_GRADIENT_NUM"]),
    )
    check_port_range(variables)
    return variables


def check_port_range(variables: Variables) -> None:
    """Raises `UserError` if some of the ports do not exist."""
    if variables.ports[-1] > _LAST_PORT:
        raise UserError(
            f"CONF_PADDLE_PORT={variables.port} leaves no room for {len(variables.ports)} ports: "
            f"the last port is {_LAST_PORT}."
        )
