"""Pure scheduling decisions: which job gets how many instances, and on which machines.

No Kubernetes, no clock, no I/O: a `ClusterState` goes in, a `Plan` comes out, and the same input gives the same plan.
The controller and the simulator run this code unchanged.
"""
