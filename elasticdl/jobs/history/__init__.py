"""The history of a job: what became of its nodes, what happened to it, and its figures over time.

`entries.py` has the format, `recorder.py` derives entries from one status after the other, `time_account.py`
divides the life of a job into time that trained and time that was lost.
"""
