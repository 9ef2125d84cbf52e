"""A program whose nodes know each other by TF_CONFIG and nothing else: each tells its name at its own address, and
workers ask all the others for theirs before each of their first batches. No framework is needed for it.
"""

import json
import os
import signal
import socket
import sys
import threading
import time

from gate import NODE, Gate

from elasticai_api.common.data_shard_service import DataShardService

# Afterwards a worker may be through with its data while others are not.
ASKED = 6


def tell_name(port: int) -> None:
    with socket.create_server(("", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(NODE.encode())


def name_of(address: str) -> str:
    """For as long as it takes: who is there may be on its way."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                return connection.recv(100).decode()
        except OSError:
            time.sleep(0.2)


# The first process of a container ends by a signal only if it asks for it.
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
config = json.loads(os.environ["TF_CONFIG"])
print("config", json.dumps(config), flush=True)
role, index = config["task"]["type"], config["task"]["index"]
own = config["cluster"][role][index]
port = int(own.rpartition(":")[2])
if role == "ps":
    tell_name(port)
threading.Thread(target=tell_name, args=(port,), daemon=True).start()
peers = [address for each in ("ps", "worker") for address in config["cluster"][each] if address != own]
gate = Gate()
shards = DataShardService(batch_size=10, num_epochs=2, dataset_size=1000, num_minibatches_per_shard=4)
batch = 0
while shard := shards.fetch_shard():
    for _ in range(shard.start, shard.end, 10):
        gate.enter()
        batch += 1
        if batch <= ASKED:
            names = {address: name_of(address) for address in peers}
            print("batch", batch, json.dumps(names), flush=True)
        shards.report_batch_done(10)
        gate.leave()
