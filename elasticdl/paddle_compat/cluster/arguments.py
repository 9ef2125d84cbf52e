"""The flags of `paddle train` and `paddle pserver`, as the guide writes them: `--name=value` or `--name value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

_SHARED: dict[str, str] = {
    "nics": "eth0",
    "port": "7164",
    "ports_num": "1",
    "ports_num_for_sparse": "0",
    "num_gradient_servers": "1",
    "pservers": "127.0.0.1",
    "comment": "",
    "config": "./trainer_config.py",
    "config_args": "",
    "trainer_count": "1",
    "use_gpu": "0",
}
TRAIN: dict[str, str] = {
    **_SHARED,
    "num_passes": "100",
    "log_period": "100",
    "dot_period": "1",
    "saving_period": "1",
    "local": "1",
    "trainer_id": "0",
    "save_dir": "./output/model",
    "init_model_path": "",
    "start_pass": "0",
    "test_period": "0",
    "job": "train",
    "seed": "1",
}
PSERVER: dict[str, str] = {**_SHARED, "address": ""}
_NUMBERS = {
    "port": 1,
    "ports_num": 1,
    "ports_num_for_sparse": 0,
    "num_gradient_servers": 1,
    "trainer_count": 1,
    "num_passes": 1,
    "log_period": 1,
    "dot_period": 0,
    "saving_period": 1,
    "trainer_id": 0,
    "start_pass": 0,
    "test_period": 0,
    "seed": 0,
}
_SWITCHES = ("use_gpu", "local")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The values of all flags of one command; `given` has those of the command line, in its order."""

    values: Mapping[str, str]
    given: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values[name]

    def number(self, name: str) -> int:
        return int(self.values[name])

    def switch(self, name: str) -> bool:
        return self.values[name].lower() in _TRUE

    @property
    def servers(self) -> list[str]:
        """The addresses of all parameter servers: `ports_num` on each host of --pservers."""
        first, count = self.number("port"), self.number("ports_num")
        hosts = [host.strip() for host in self.text("pservers").split(",") if host.strip()]
        return [f"{host}:{first + index}" for host in hosts for index in range(count)]

    def words(self) -> list[str]:
        return [f"--{name}={value}" for name, value in self.given.items()]


def parse(words: Sequence[str], known: Mapping[str, str], *, command: str) -> Arguments:
    """Raises `UserError` for a flag that does not exist or a value that does not fit."""
    given: dict[str, str] = {}
    for name, value in pairs(words, command=command):
        if name not in known:
            raise UserError(f"{command}: there is no flag --{name}.{did_you_mean(name, known)}")
        given[name] = value
    for name, least in _NUMBERS.items():
        if name in given and (not given[name].isdigit() or int(given[name]) < least):
            raise UserError(
                f"{command}: --{name} takes a whole number of at least {least}, not {given[name]!r}."
            )
    for name in _SWITCHES:
        if name in given and given[name].lower() not in (*_TRUE, *_FALSE):
            raise UserError(f"{command}: --{name} takes 0 or 1, not {given[name]!r}.")
    return Arguments(values={**known, **given}, given=given)


def pairs(words: Sequence[str], *, command: str) -> Iterable[tuple[str, str]]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{command}: {word!r} is not a flag.", hint="Flags are written --name=value.")
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "1"
        yield name.replace("-", "_"), value
