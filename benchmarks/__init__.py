"""Measures every speed we claim against a peer in the same run, and compares it with its target.

`python -m benchmarks` runs all benchmarks; README.md in this folder describes them. Each module that `__main__` names
measures one claim and returns `report.Result`s; the other modules are the programs and processes under test.
"""
