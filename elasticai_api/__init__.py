"""The library that a training program imports to become elastic: it fetches shards of its data and reports progress.

Needs gRPC and nothing else; what is for one framework is in the folder named after it. Without a master (no
MASTER_ADDR in the environment) it works alone in one process, so a program is debugged by just running it.
"""
