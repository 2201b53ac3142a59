"""The config: a TOML file and flags become one validated, frozen, fully spelt-out ``Config``.

``resolve`` fills in what was left out with defaults that suit the data and the model, and refuses what it does not
know. A key that belongs to another kind than the one chosen is dropped with a note, never silently.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedstein.algorithms import ALGORITHMS
from fedstein.errors import InputError
from fedstein.machine import cores
from fedstein.models import MODELS
from fedstein.runs.defaults import BUDGET, PRESETS, Facts, defaults, inapplicable, kinds
from fedstein.selection import SCHEMES

Positive = Annotated[int, Field(ge=1, le=10**9)]
Count = Annotated[int, Field(ge=0, le=10**9)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Data(Section):
    name: str
    path: str | None = None
    target: str | None = None
    features: list[str] | None = None
    labels: list[str | int] | None = None
    client: str | None = None
    task: Literal["classification", "regression"] | None = None
    test_path: str | None = None
    test_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    standardize: bool | None = None


class Partition(Section):
    kind: str
    clients: Positive
    rows_per_client: Count | None = None
    ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    classes: Positive | None = None
    concentration: PositiveFloat | None = None
    deal: Literal["balanced", "random"] | None = None


class Model(Section):
    kind: str
    hidden: Annotated[list[Positive], Field(min_length=1)] | None = None
    prior_shape: PositiveFloat | None = None
    prior_rate: PositiveFloat | None = None
    prior_precision: PositiveFloat | None = None
    start: Literal["prior", "wide", "fan_in"] | None = None


class Sites(Section):
    kind: str
    density: Literal["log", "reference"] | None = None
    bandwidth: PositiveFloat | None = None
    structure: Literal["full", "diagonal", "eigen"] | None = None
    stiffness: PositiveFloat | None = None
    damping: Annotated[float, Field(gt=0, le=1)] | None = None
    label_samples: Annotated[int, Field(ge=0, le=1000)] | None = None
    rank: Count | None = None
    renew: bool | None = None
    settle: bool | None = None


class Selection(Section):
    kind: str
    per_round: Positive
    draw: Literal["proportional", "greedy", "pass", "aged"] | None = None
    pool: Count | None = None
    report_rows: Count | None = None
    max_ratio: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    max_probability: Annotated[float, Field(gt=0, le=1)] | None = None
    barred: list[Count] | None = None
    order: Literal["given", "seeded", "reshuffled"] | None = None


class AlgorithmSection(Section):
    kind: str
    particles: Annotated[int, Field(ge=1, le=10**6)]
    local_steps: Positive
    distill_steps: Positive | None = None
    step_size: PositiveFloat
    epsilon: PositiveFloat | None = None
    batch_size: Positive
    temperature: PositiveFloat
    schedule: Literal["constant", "cosine"]
    prior: Literal["divided", "as_written"] | None = None


class EngineSection(Section):
    kind: str
    threads: Annotated[int, Field(ge=0, le=256)]
    precision: Literal["float32", "float64"]
    device: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    budget: Count = BUDGET  # folders from before there was one do not name it
    on_missing: Literal["wait", "proceed"] | None = None
    report_timeout: PositiveFloat | None = None
    train_timeout: PositiveFloat | None = None
    start_timeout: PositiveFloat | None = None
    patience: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    offences: Positive | None = None
    leave_out: Count | None = None

    def computing(self) -> EngineSection:
        """Without how clients are reached and waited for: what the result depends on."""
        return EngineSection(kind=self.kind, threads=self.threads, precision=self.precision, device=self.device)


class Evaluate(Section):
    every: Positive
    where: Literal["server", "clients"] = "server"
    fraction: Annotated[float, Field(gt=0, lt=1)] | None = (
        None  # of each client's rows; None where the server evaluates
    )


class CheckpointSection(Section):
    every: Positive


class Config(Section):
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    rounds: Positive
    data: Data
    partition: Partition
    model: Model
    sites: Sites
    selection: Selection
    algorithm: AlgorithmSection
    engine: EngineSection
    evaluate: Evaluate
    checkpoint: CheckpointSection

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        starts = MODELS[self.model.kind].starts
        if self.model.start not in starts:
            raise ValueError(unknown(f"value of model.start for {self.model.kind}", self.model.start, starts))
        info, scheme = ALGORITHMS[self.algorithm.kind], self.selection.kind
        chosen = f"algorithm.kind = {self.algorithm.kind!r}"
        if self.sites.kind not in info.sites:
            raise ValueError(
                f"sites.kind = {self.sites.kind!r} does not go with {chosen}; use {' or '.join(info.sites)}"
            )
        if info.schemes and scheme not in info.schemes:
            raise ValueError(f"selection.kind = {scheme!r} does not go with {chosen}; use {' or '.join(info.schemes)}")
        if self.algorithm.particles < 2 and self.algorithm.kind != "fedavg":
            raise ValueError(
                f"algorithm.particles = {self.algorithm.particles} is too few for {chosen}; take at least 2"
            )
        wanted = SCHEMES[scheme].sites
        if wanted and self.sites.kind not in wanted:
            others = [name for name, other in SCHEMES.items() if not other.sites]
            raise ValueError(
                f"selection.kind = {scheme!r} needs sites.kind = {' or '.join(map(repr, wanted))}, "
                f"got {self.sites.kind!r}; set it, or choose a scheme for any sites: {', '.join(others)}"
            )
        if self.data.name == "nodes":
            if self.engine.kind == "local":
                raise ValueError(
                    'data.name = "nodes" needs engine.kind = "flower": every row is with its node; '
                    "use fedstein deploy app"
                )
            if self.evaluate.where == "server" and not self.data.test_path:
                raise ValueError(
                    "evaluate.where = 'server' needs test rows at the server: set data.test_path, or let the clients "
                    "evaluate (evaluate.where = 'clients')"
                )
        clients, per_round, pool = self.partition.clients, self.selection.per_round, self.selection.pool or 0
        barred = self.selection.barred or []
        if len(set(barred)) < len(barred) or any(client >= clients for client in barred) or len(barred) >= clients:
            raise ValueError(
                f"selection.barred = {barred}: expected different ids from 0 to {clients - 1}, at least one left out"
            )
        if per_round > clients - len(barred):
            left = f" without the {len(barred)} of selection.barred" if barred else ""
            raise ValueError(
                f"selection.per_round = {per_round} is more than partition.clients = {clients}{left}; lower per_round"
            )
        if self.sites.settle and self.sites.structure != "full":
            raise ValueError(
                f"sites.settle needs sites.structure = 'full', got {self.sites.structure!r}; set it to false"
            )
        if self.sites.renew and not SCHEMES[scheme].scores:
            able = " or ".join(repr(name) for name, other in SCHEMES.items() if other.scores)
            raise ValueError(
                f"sites.renew needs reports that are scores (selection.kind = {able}), got {scheme!r}; set it to false"
            )
        if self.sites.renew and self.sites.damping != 1.0:
            raise ValueError(f"sites.renew needs sites.damping = 1, got {self.sites.damping}; set one of them")
        if (self.evaluate.where == "clients") != (self.evaluate.fraction is not None):
            raise ValueError(
                f"evaluate.where = {self.evaluate.where!r} with evaluate.fraction = {self.evaluate.fraction}: expected "
                "a fraction with 'clients' and none with 'server'; set both, or neither"
            )
        if 0 < pool < per_round:
            raise ValueError(f"selection.pool = {pool} is less than selection.per_round = {per_round}; raise pool")
        if pool > clients:
            raise ValueError(f"selection.pool = {pool} is more than partition.clients = {clients}; use 0 to ask all")
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain values; keys that do not apply are left out."""
        return self.model_dump(exclude_none=True)

    def to_toml(self) -> str:
        return tomli_w.dumps(self.to_dict())


SECTIONS: dict[str, type[Section]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}


def read_toml(path: Path) -> dict[str, Any]:
    """A config file as plain data."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"expected a config file at {path}, found none; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}; expected a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def parse_setting(text: str) -> tuple[list[str], Any]:
    """``section.key=value`` -> (["section", "key"], value); the value parses as TOML, else it is a string."""
    name, equals, value = text.partition("=")
    keys = [part.strip() for part in name.split(".")]
    if not equals or not all(keys):
        raise InputError(f"--set expects section.key=value, got {text!r}; for example --set selection.kind=hip")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")
        return keys, parsed["value"] if list(parsed) == ["value"] else value.strip()
    except tomllib.TOMLDecodeError:
        return keys, value.strip()


def with_preset(name: str | None, raw: Mapping[str, Any]) -> dict[str, Any]:
    """``raw`` over the settings of a preset; what the user says himself wins."""
    if name is None:
        return dict(raw)
    if name not in PRESETS:
        raise InputError(unknown("preset", name, list(PRESETS)))
    base, merged = PRESETS[name], dict(raw)
    for section, values in base.items():
        own = raw.get(section, {})
        merged[section] = {**values, **own} if isinstance(own, Mapping) else own
    return merged


def merge(base: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of ``base`` with every ``--set`` applied."""
    merged = {key: dict(value) if isinstance(value, Mapping) else value for key, value in base.items()}
    for text in settings:
        keys, value = parse_setting(text)
        if len(keys) == 1:
            merged[keys[0]] = value
        elif len(keys) == 2:
            section = merged.setdefault(keys[0], {})
            if not isinstance(section, dict):
                raise InputError(f"--set {text}: {keys[0]} is a value, not a section; write --set {keys[0]}=VALUE")
            section[keys[1]] = value
        else:
            raise InputError(f"--set {text}: expected key=value or section.key=value, got {len(keys)} levels")
    return merged


def check_names(raw: Mapping[str, Any]) -> None:
    """Unknown sections and keys, and values of ``kind`` and the like, are refused with the valid ones listed."""
    for name, value in raw.items():
        if name not in Config.model_fields:
            raise InputError(unknown("key", name, list(Config.model_fields)))
        if name in SECTIONS:
            if not isinstance(value, Mapping):
                raise InputError(f"[{name}] must be a section of keys, got {value!r}")
            fields = SECTIONS[name].model_fields
            for key, given in value.items():
                if key not in fields:
                    raise InputError(unknown(f"key in [{name}]", key, list(fields)))
                choices = kinds(name) if key == "kind" else literal_choices(fields[key].annotation)
                if choices and given not in choices:
                    raise InputError(unknown(f"value of {name}.{key}", given, choices))
        elif isinstance(value, Mapping):
            raise InputError(f"{name} must be a value, got a section")


def check_section(name: str, values: Mapping[str, Any]) -> None:
    """One section on its own, before it is used to find out the rest."""
    try:
        SECTIONS[name].model_validate(values)
    except ValidationError as error:
        raise InputError(f"{name}.{sentence(error)}") from None


def literal_choices(annotation: Any) -> list[str]:
    """The strings a field may hold, or nothing where it is free."""
    arguments = get_args(annotation)
    if arguments and all(isinstance(a, str) for a in arguments):
        return list(arguments)
    for inner in arguments:
        if choices := literal_choices(inner):
            return choices
    return []


def unknown(what: str, got: Any, valid: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(got), valid, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {what}: {got!r}{hint}; expected one of: {', '.join(valid)}"


def resolve(raw: Mapping[str, Any], facts: Facts) -> tuple[Config, list[str]]:
    """Raw settings and what is known of the data -> the full config, and notes on keys that were dropped."""
    check_names(raw)
    full = defaults(raw, facts)
    notes = inapplicable(full)
    for section, key, _why in notes:
        del full[section][key]
    if not full["engine"]["threads"]:
        full["engine"]["threads"] = cores()
    try:
        config = Config.model_validate(full)
    except ValidationError as error:
        raise InputError(sentence(error)) from None
    return config, [f"{section}.{key} is not used: {why}" for section, key, why in notes]


def load_config(path: Path) -> Config:
    """The ``config.toml`` of a run folder, which spells everything out."""
    return whole_config(read_toml(path), str(path))


def whole_config(raw: Mapping[str, Any], where: str) -> Config:
    """A config with every key spelt out, from a run folder or from a server."""
    check_names(raw)
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{where} is not the config of a run: {sentence(error)}") from None


def sentence(error: ValidationError) -> str:
    """The first of pydantic's complaints as one line."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    expected = first["msg"][0].lower() + first["msg"][1:]
    got = first.get("input")
    return f"{where}: {expected}, got {got!r}" if where else expected
