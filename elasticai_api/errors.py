"""Errors between a training program and the master of its job, worded for the program's author.

Nothing here is retried: what passes by waiting (a master that restarts) is waited for, and never comes up as an error
before the patience of the connection is used up.
"""

from __future__ import annotations


class ElasticError(Exception):
    """Every error that this package raises on purpose."""


class ShardError(ElasticError):
    """A data set or a shard is not what the program says it is; asking again would not help."""


class MasterError(ElasticError):
    """The master was away for longer than the program wants to wait, or answers what it should not."""


class TokenError(MasterError):
    """The master does not take this process for a part of its job."""


class NonFiniteError(ElasticError):
    """Gradients or parameters are NaN or infinite, and would spoil the model of all workers."""


class RecordIOError(ElasticError):
    """A RecordIO file is damaged, or stored in a way that cannot be read here."""


class Drained(SystemExit):
    """This worker is drained: it has finished its step and left the others. Ends the program with exit code 0.

    Not an `ElasticError`, for nothing is wrong. A program that has something to do before it ends may catch it.
    """

    def __init__(self) -> None:
        super().__init__(0)
