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
_EXPLANATIONS = {
    "nics": "network interface",
    "port": "first port of the parameter servers of a node",
    "ports_num": "parameter servers of a node",
    "ports_num_for_sparse": "ports that are kept free behind them",
    "num_gradient_servers": "number of trainers",
    "pservers": "addresses of all nodes, separated by commas",
    "comment": "any text, to find the process by",
    "config": "the configuration, or a program for Paddle's fleet",
    "config_args": "NAME=VALUE,… that get_config_arg reads",
    "trainer_count": "threads of a trainer",
    "use_gpu": "this Paddle runs on CPUs",
    "num_passes": "passes over the data",
    "log_period": "batches from one line of the log to the next",
    "dot_period": "batches from one dot to the next; 0: no dots",
    "saving_period": "passes from one that is saved to the next",
    "local": "1: without parameter servers",
    "trainer_id": "number of this trainer, from 0",
    "save_dir": "folder of the passes; training continues behind the newest complete one",
    "init_model_path": "folder with the parameters to start with",
    "start_pass": "pass to start with, from the parameters of the one before",
    "test_period": "accepted; each pass is tested at its end",
    "job": "train is all there is",
    "seed": "of the first parameters and of the order of the samples",
    "address": "address of this node, if not that of --nics",
}
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
# Of a number that fits in 64 bits.
_MOST_DIGITS = 18
_LAST_PORT = 65535
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


def explain(known: Mapping[str, str], *, command: str) -> str:
    """Returns the text of `--help`."""
    lines = [f"Usage: {command} [--FLAG=VALUE]...", ""]
    for name, default in known.items():
        given = f"  [default: {default}]" if default else ""
        lines.append(f"  --{name:<22}{_EXPLANATIONS[name]}{given}")
    return "\n".join(lines)


def parse(words: Sequence[str], known: Mapping[str, str], *, command: str) -> Arguments:
    """Raises `UserError` for a flag that does not exist or a value that does not fit."""
    given: dict[str, str] = {}
    for name, value in pairs(words, command=command):
        if name not in known:
            raise UserError(f"{command}: there is no flag --{name}.{did_you_mean(name, known)}")
        if value is None:
            if name not in _SWITCHES:
                raise UserError(f"{command}: --{name} needs a value.", hint=f"Write --{name}=VALUE.")
            value = _TRUE[0]
        given[name] = value
    for name, least in _NUMBERS.items():
        if name in given and ((number := whole_number(given[name])) is None or number < least):
            raise UserError(
                f"{command}: --{name} takes a whole number of at least {least}, not {shortened(given[name])}."
            )
    for name in _SWITCHES:
        if name in given and given[name].lower() not in (*_TRUE, *_FALSE):
            raise UserError(f"{command}: --{name} takes 0 or 1, not {given[name]!r}.")
    values = {**known, **given}
    if "start_pass" in given and int(values["start_pass"]) >= int(values["num_passes"]):
        raise UserError(
            f"{command}: --start_pass={values['start_pass']} is not below --num_passes={values['num_passes']}: no pass "
            "would be trained."
        )
    ports = sum(int(values[name]) for name in ("port", "ports_num", "ports_num_for_sparse"))
    if ports - 1 > _LAST_PORT:
        raise UserError(
            f"{command}: --port={values['port']} leaves no room for {values['ports_num']} servers: the last port is "
            f"{_LAST_PORT}."
        )
    if given.get("job", "train") != "train":
        raise UserError(
            f"{command}: --job={given['job']} is not supported, only --job=train.",
            hint="Training tests each pass at its end, with the test_list of the configuration.",
        )
    return Arguments(values=values, given=given)


def whole_number(text: str) -> int | None:
    """None for what is no number of digits, or one that fits in no 64 bits."""
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        return None
    return int(text)


def shortened(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def pairs(words: Sequence[str], *, command: str) -> Iterable[tuple[str, str | None]]:
    """Names and values of flags; the value is None for a flag without one."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{command}: {word!r} is not a flag.", hint="Flags are written --name=value.")
        name, equals, text = word.removeprefix("--").partition("=")
        value: str | None = text
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else None
        yield name.replace("-", "_"), value
