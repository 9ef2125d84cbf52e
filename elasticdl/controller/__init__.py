"""The controller of TrainingJobs: one per cluster; it keeps machines full and yields to everything else there.

Level-triggered: it decides from what exists, not from what it remembers, so it may be killed at any moment. Objects
are cached by list and watch (`informer`), one of several replicas leads (`election`), `engine` turns the cached view
and a clock into actions, and `effects` carries them out. Pods are left to the job's master: the controller writes the
desired size into the job record.
"""
