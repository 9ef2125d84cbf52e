"""Names and numbers that the programs, the master and the public package of this name agree on."""

from __future__ import annotations


class DefaultDatasetName:
    """Data sets of programs that give no name."""

    TRAINING = "_EDL_DEFAULT_TRAINING_DATA"
    EVALUATION = "_EDL_DEFAULT_EVALUATION_DATA"


class DatasetShardRemainder:
    """The treatment of samples at the end of a data set that do not fill a batch."""

    FILL = "fill"
    DROP = "drop"


class PodEnv:
    """The environment by which a process finds out which part of which job it is."""

    MASTER_ADDR = "MASTER_ADDR"
    # Of the public package: the same calls without a token, at a port of their own.
    DLROVER_MASTER_ADDR = "DLROVER_MASTER_ADDR"
    TOKEN_FILE = "ELASTICDL_TOKEN_FILE"
    # Where set, connections with the token are encrypted: the job's own authority, and the name of its servers.
    CA_FILE = "ELASTICDL_CA_FILE"
    TLS_NAME = "ELASTICDL_TLS_NAME"
    WORKER_TYPE = "WORKER_TYPE"
    WORKER_ID = "WORKER_ID"
    WORKER_NUM = "WORKER_NUM"
    # Seconds to wait for a master that is away before the program ends with an error.
    PATIENCE = "ELASTICAI_MASTER_PATIENCE"


class TrainingLoopStatus:
    """The state of a worker's training loop."""

    START = 1
    END = 2
    PENDING = 3
