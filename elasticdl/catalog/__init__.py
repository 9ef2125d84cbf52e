"""Jobs as seen from outside, local or on a cluster: submit, find, list, status, logs, scale, stop, resume, delete.

`catalog.py` and `job.py` are the interface, `local/` and `kubernetes/` implement it, `lookup.py` searches both. Nothing
here prints: progress and notes go to a `JobObserver`.
"""
