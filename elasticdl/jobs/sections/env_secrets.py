"""Environment variables whose values are in Secrets of the cluster: `--secret_envs=NAME=SECRET/KEY`.

On a cluster the values of `--envs` are kept that way too (`jobs.spec.without_env_values`): many may read the ConfigMaps
and Pods of a namespace, and fewer its Secrets. Job records and manifests of pods have only the names of variables.

Failure modes
    A Secret or a key that does not exist: Kubernetes does not start the container, and says what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.jobs.flags.grammar import Pairs, Rule
from elasticdl.jobs.flags.names import DNS_NAME, ENVIRONMENT_VARIABLE
from elasticdl.jobs.flags.pairs import BadValue

_KEY = Rule(pattern=r"[-._A-Za-z0-9]+", words="a key of a Secret", longest=253)


@dataclass(frozen=True, kw_only=True)
class SecretKey:
    secret: str
    key: str

    @classmethod
    def of(cls, variable: str, reference: str) -> SecretKey:
        """Reads `SECRET/KEY`. Without a key, it is the name of the variable. Raises `BadValue`."""
        secret, slash, key = reference.partition("/")
        found = cls(secret=secret, key=key if slash else variable)
        DNS_NAME.check(found.secret)
        _KEY.check(found.key)
        return found


class SecretEnvs(Pairs):
    metavar = "NAME=SECRET[/KEY],..."

    def parse(self, raw: object) -> dict[str, str]:
        pairs = super().parse(raw)
        for variable, reference in pairs.items():
            try:
                SecretKey.of(variable, reference)
            except BadValue as problem:
                raise BadValue(f"{variable}: {problem}") from None
        return pairs


SECRET_ENVS = SecretEnvs(key_rule=ENVIRONMENT_VARIABLE)


def secret_name(job: str) -> str:
    """Returns the name of the Secret that has the values of the job's `--envs`."""
    return f"elasticdl-{job}-envs"


def references(job: str, envs: Mapping[str, str]) -> dict[str, str]:
    """Returns the value of `--secret_envs` for variables whose values are in the job's Secret."""
    return dict.fromkeys(envs, secret_name(job))
