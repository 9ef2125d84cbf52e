"""Recovery of a master that lost its journal, or the end of it.

`JournalRecovery` (`journal_recovery.py`) is the entry point: the master calls it when it starts, and runs it until the
recovery is done. The rest is internal to this package:

    remote_snapshot.py    the snapshot of the job's state that is kept outside of the master's own disk
    reclaim.py            the state machine: which workers have reported, and what they have reclaimed (`ReclaimPhase`)
    ledger_reclaim.py     what a report does to the ledger

Workers keep what they report in `elasticai_api.common.shard_memory`, programs with their own training loop as well.
"""
