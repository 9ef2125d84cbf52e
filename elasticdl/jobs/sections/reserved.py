"""Variables, volumes and folders that a job sets in its nodes itself. Users cannot set them.

Such a job would disconnect its own nodes, or its setting would be ignored silently.
"""

from __future__ import annotations

import posixpath
import re

from elasticdl.jobs.sections.program import ModelSection

VARIABLES = frozenset(
    (
        "DLROVER_MASTER_ADDR",
        "ELASTICDL_ADVERTISE",
        "ELASTICDL_BIND",
        "ELASTICDL_CA_FILE",
        "ELASTICDL_CERT_FILE",
        "ELASTICDL_HOST_SOCKET",
        "ELASTICDL_JOB",
        "ELASTICDL_JOB_DIR",
        "ELASTICDL_KEY_FILE",
        "ELASTICDL_MASTER_PORT",
        "ELASTICDL_NODE",
        "ELASTICDL_PLATFORM",
        "ELASTICDL_POD_UID",
        "ELASTICDL_PORT",
        "ELASTICDL_PROCESS_OF",
        "ELASTICDL_PUBLIC_PORT",
        "ELASTICDL_REMOTE_NODE",
        "ELASTICDL_TLS_NAME",
        "ELASTICDL_TOKEN_FILE",
        "MASTER_ADDR",
        "MY_POD_IP",
        "WORKER_ID",
        "WORKER_NUM",
        "WORKER_TYPE",
    )
)
# As Paddle reads them.
_OF_PADDLE = frozenset(
    (
        "PADDLE_CURRENT_ENDPOINT",
        "PADDLE_PORT",
        "PADDLE_PSERVERS_IP_PORT_LIST",
        "PADDLE_TRAINERS_NUM",
        "PADDLE_TRAINER_ENDPOINTS",
        "PADDLE_TRAINER_ID",
        "POD_IP",
        "TRAINING_ROLE",
    )
)

SECRET_FOLDER = "/var/run/elasticdl/job"
NOTICE_FOLDER = "/var/run/elasticdl/notice"
# The master's folder in its pod. On a volume mounted there it would find the journal of another job.
STATE_FOLDER = "/var/lib/elasticdl"
# Folders of every program, where the file system of its image is read-only.
HOME_FOLDER = "/home/elasticdl"
# Variables with this prefix name the cluster in every pod: a user's value would lead a master to another one.
OF_THE_CLUSTER = "KUBERNETES_"
# The volumes of --volume have numbers.
_VOLUME = re.compile(r"secret|state|scratch|home|notice|volume-\d+")


def variables(model: ModelSection, *, num_ps: int) -> frozenset[str]:
    """Returns the variables of the nodes of a job with this program."""
    of_paddle = _OF_PADDLE if model.framework(num_ps=num_ps) == "paddle" else frozenset[str]()
    return VARIABLES | of_paddle | ({"TF_CONFIG"} if model.need_tf_config else frozenset())


def is_volume(name: str) -> bool:
    return _VOLUME.fullmatch(name) is not None


def same_place(path: str) -> str:
    """Normalizes the spelling of an absolute path."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


def why_not_there(path: str) -> str:
    """Returns why a volume cannot be mounted at a path: it would replace a folder of the job itself, or be inside of
    one. A volume above one is allowed: the folder of the job is mounted in it. Only if such a volume is read-only and
    lacks the folder can no container start, as Kubernetes then reports. "" if nothing prevents it.
    """
    place = same_place(path)
    if any(_inside(place, folder) for folder in (SECRET_FOLDER, NOTICE_FOLDER)):
        return "what the job itself needs is there"
    if _inside(place, STATE_FOLDER):
        return (
            "the master keeps its journal there, which is one job's alone; "
            "--journal_dir names a folder on a volume for it"
        )
    return ""


def _inside(path: str, folder: str) -> bool:
    """Or that folder itself."""
    return f"{path}/".startswith(f"{folder}/")
