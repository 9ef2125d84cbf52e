"""Every speed we claim, measured here against a peer in the same run, and compared with its target.

`python -m benchmarks` runs all of it; see README.md in this folder. Each module named in `__main__` measures
one claim and returns `report.Result`s; the others start what is measured.
"""
