"""The PaddlePaddle of the Kubernetes guide on top of Paddle 2.6.2.

    cluster   the nodes of a job: variables, membership, data, supervision; imports no framework
    command   `paddle train` and `paddle pserver` with the flags of the guide
    config    configurations in the old style: `paddle.trainer_config_helpers` and `paddle.trainer.PyDataProvider2`
    demos     the configurations `quick_start` and `recommendation`

Every node runs parameter servers and one trainer. Their number is fixed while a job runs; a lost node restarts the job
from the newest complete pass.
"""
