"""docs/reference/environment.md: environment variables that are read, and those that nodes get.

`VARIABLES` describes them. A test finds every variable in the code and compares.
"""

from __future__ import annotations

from collections.abc import Mapping

from tools.reference.markdown import code, opening, table

_TEXT = "Flags of a job are no environment variables: see [flags](flags.md). `--envs` sets variables of a job's nodes."

# By heading.
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "Read by the commands": {
        "ELASTICDL_HOME": "Folder of job folders, of the token of the dashboard and of the history. By default "
        "`~/.elasticdl`.",
        "ELASTICDL_CACHE": "Folder for copies of data at URLs and for indexes. By default `~/.cache/elasticdl`.",
        "ELASTICDL_THREADS": "Threads that each worker computes with. By default the cores, shared by the workers of "
        "this machine.",
        "OMP_NUM_THREADS": "The same for libraries that read it; `ELASTICDL_THREADS` goes before it.",
        "KUBECONFIG": "Files that name clusters, as for kubectl. By default `~/.kube/config`.",
        "KUBERNETES_SERVICE_HOST": "Set by Kubernetes in pods: commands then use the account of their pod.",
        "NO_COLOR": "Without colours, whatever its value.",
        "CUDA_VISIBLE_DEVICES": "GPUs that nodes of this machine may use.",
        "PATH": "Where job commands find their programs, behind the Python that runs `elasticdl`.",
        "PYTHONPATH": "Where Python finds modules of model definitions, beside the model zoo.",
        "CXX": "The C++ compiler of an installation from source.",
    },
    "Set for every node": {
        "MASTER_ADDR": "Address of the master, `HOST:PORT`.",
        "DLROVER_MASTER_ADDR": "The same, for programs with the public `elasticai_api`.",
        "WORKER_ID": "Number of the node.",
        "WORKER_TYPE": "Role of the node: `worker`, `chief`, `evaluator` or `ps`.",
        "WORKER_NUM": "Number of workers when the node was started.",
        "MY_POD_IP": "Address of the node.",
        "ELASTICDL_NODE": "Name of the node, such as `worker-0`.",
        "ELASTICDL_JOB": "Name of the job (on Kubernetes).",
        "ELASTICDL_TOKEN_FILE": "File with the token of the job.",
        "ELASTICDL_CA_FILE": "Certificate authority of the job, with TLS.",
        "ELASTICDL_CERT_FILE": "Certificate of the node, with TLS.",
        "ELASTICDL_KEY_FILE": "Key of the certificate, with TLS.",
        "ELASTICDL_TLS_NAME": "Name that certificates of the job have.",
    },
    "Set for programs, by framework": {
        "TF_CONFIG": "Cluster and task, as TensorFlow reads them; with `--need_tf_config=true`.",
        "PADDLE_TRAINER_ID": "Number of the trainer. This and the next ones are for Paddle programs.",
        "PADDLE_TRAINERS_NUM": "Number of trainers.",
        "PADDLE_TRAINER_ENDPOINTS": "Addresses of the trainers.",
        "PADDLE_CURRENT_ENDPOINT": "Address of this node.",
        "PADDLE_PSERVERS_IP_PORT_LIST": "Addresses of the parameter servers.",
        "PADDLE_PORT": "Port of this node.",
        "PADDLE_NUM_PASSES": "Passes over the data, of `paddle train`.",
        "POD_IP": "Address of this node.",
        "TRAINING_ROLE": "`TRAINER` or `PSERVER`.",
        "FLAGS_LAUNCH_BARRIER": "Set to 0 by the launcher of Paddle.",
        "ELASTICAI_BACKEND": "Backend of elastic all-reduce in PyTorch, in place of the one chosen for the device: "
        "`gloo` or `nccl`.",
        "LOCAL_RANK": "Number of a process on its machine, if a launcher has set it: it chooses the GPU.",
    },
    "Between processes of ElasticDL": {
        "ELASTICDL_PLATFORM": "`kubernetes` in pods.",
        "ELASTICDL_JOB_DIR": "Folder of the job, for its master.",
        "ELASTICDL_HOST_SOCKET": "Socket of the process that starts nodes on this machine.",
        "ELASTICDL_MASTER_PORT": "Port of the master.",
        "ELASTICDL_PUBLIC_PORT": "Port of the master for the public `elasticai_api`.",
        "ELASTICDL_ATTEMPT": "How often the job was resumed, plus one.",
        "ELASTICDL_POD_UID": "UID of the master's pod.",
        "ELASTICDL_PROCESS_OF": "Marks processes of a job, so that none survives it.",
        "ELASTICDL_BIND": "Address that a parameter server listens at.",
        "ELASTICDL_PORT": "Port that a parameter server listens at.",
        "ELASTICDL_ADVERTISE": "Address under which others reach a parameter server.",
        "ELASTICDL_PADDLE_MEMBERS": "File with the members of a `paddle train` job.",
        "ELASTICDL_PADDLE_UID": "UID of the pod in such a job.",
    },
}


def page() -> str:
    lines = opening("Environment variables", "tools/reference/environment.py", _TEXT)
    for heading, variables in VARIABLES.items():
        lines += [f"## {heading}", ""]
        lines += table(["variable", "meaning"], ([code(name), text] for name, text in variables.items()))
    return "\n".join(lines)
