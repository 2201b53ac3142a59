"""A node's policy: the requests that its operator allows. The node refuses any other request before it reads a row.

A policy is a TOML file beside the node. ``fedstein node policy`` writes one from a config that was agreed on. Every
list names what is allowed, and ``"*"`` allows everything. A missing list is an error, so that an operator cannot allow
anything by forgetting it. A node without a policy file still allows only the columns that its node config names.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import Field, ValidationError

from fedstein.data.encoding import known_categories
from fedstein.data.node_schema import is_open
from fedstein.errors import InputError
from fedstein.evaluation.metrics import METRICS
from fedstein.federation.channel import KINDS
from fedstein.federation.codecs import CODECS
from fedstein.inference.methods import METHODS
from fedstein.inference.sites import SITES
from fedstein.models import MODELS
from fedstein.privacy.accounting import epsilon_of, mu_of
from fedstein.registry import Registry
from fedstein.runs.build import structure_of
from fedstein.runs.config import Config
from fedstein.runs.sections import find_kind
from fedstein.runs.secure_checks import summed_by, sums_are_secure
from fedstein.runs.values import sentence
from fedstein.selection import SCHEMES
from fedstein.settings import Positive, PositiveFloat, Settings
from fedstein.stein import KERNELS

ANY = "*"
LEAST_ROWS = 5  # the default of ``least_rows`` in a policy that is made from a config
LEVELS = ("none", "record", "client")  # kinds of privacy, from the weakest


class Refused(InputError):
    """A request that the node's operator does not allow. The text names what is not allowed, and what is."""


class PrivacyDemand(Settings):
    """The least protection that a run must have: its ``[privacy]`` must be at least as strict."""

    kind: Literal["none", "record", "client"] = "record"
    epsilon: PositiveFloat | None = None
    delta: PositiveFloat | None = None
    sums: Literal["plain", "secure"] = "plain"


class Policy(Settings):
    """The requests that a server may make. The names are those of the config; docs/deploy.md explains each key."""

    targets: list[str]
    features: list[str]
    categories: list[str]  # columns whose categories may be counted although they look like numbers
    models: list[str]
    methods: list[str]
    schemes: list[str]
    sites: list[str]
    messages: list[str]
    plugins: list[str]  # by import path or module; "*" is not allowed here
    runs: list[str]  # digests of configs
    least_rows: Positive
    privacy: PrivacyDemand | None = None
    source: str = Field("the policy", exclude=True)  # what messages call it


def of_columns(target: str, features: Sequence[str], plugins: Sequence[str]) -> Policy:
    """The policy of a node whose operator has set only columns and plug-ins, in the node config."""
    anything = {name: [ANY] for name in ("models", "methods", "schemes", "sites", "messages", "runs")}
    named = {"targets": [target], "features": list(features), "categories": list(features), "plugins": list(plugins)}
    return Policy.model_validate({**anything, **named, "least_rows": 1, "source": "the node config"})


def read_policy(path: Path) -> Policy:
    """Read a policy file.

    Args:
        path: The file.

    Returns:
        The policy.

    Raises:
        InputError: The file cannot be read, or is not a policy. A node with such a policy answers nothing.
    """
    try:
        found = tomllib.loads(path.expanduser().read_text(encoding="utf-8"))
        if "source" in found:
            raise InputError("source: unknown key")
        return Policy.model_validate({**found, "source": f"policy {path.name}"})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"the policy {path} cannot be read: {error}") from None
    except ValidationError as error:
        raise InputError(f"{path} is not a policy: {sentence(error)}; fedstein node policy writes one") from None
    except InputError as error:
        raise InputError(f"{path} is not a policy: {error}; fedstein node policy writes one") from None


def run_digest(config: Config) -> str:
    """A digest of what a run computes: its resolved config without the settings of how and where it runs.

    It leaves out ``[engine]``, ``[checkpoint]`` and the server's own test file. It also leaves out what the server may
    learn about the columns from the nodes: ``data.categories``, which a policy lists separately, and ``data.fill``.

    Args:
        config: The config of the run.

    Returns:
        A SHA-256 in hexadecimal digits.
    """
    found = config.to_dict()
    data = {key: value for key, value in found["data"].items() if key not in ("test_path", "categories", "fill")}
    data["task"] = data.get("task") or ("classification" if data.get("labels") else "regression")
    kept = {key: value for key, value in found.items() if key not in ("engine", "checkpoint")}
    return hashlib.sha256(json.dumps({**kept, "data": data}, sort_keys=True).encode()).hexdigest()


def messages_of(config: Config) -> tuple[str, ...]:
    """The kinds of messages that an honest server sends in a run of this config."""
    own, given = config.data.name == "nodes", config.data
    asked = {
        "hello": True,
        "columns": own and is_open(given.categories, given.missing, given.fill),
        "scale": own and bool(given.standardize),
        "sums": structure_of(config) == "eigen",
        "ask": bool(find_kind("selection", config.selection.kind).asks) and not config.privacy.on,
        "train": True,
        "evaluate": config.evaluate.where == "clients",
        **dict.fromkeys(("expand", "nodes", "weigh"), getattr(config.sites, "expand", "mean") == "variational"),
    }
    if sums_are_secure(config):
        asked |= {**dict.fromkeys(summed_by(config), False), "secure": True}
    return tuple(kind for kind, wanted in asked.items() if wanted)


def make_policy(config: Config, least_rows: int = LEAST_ROWS) -> Policy:
    """The policy that allows one config and nothing else.

    Args:
        config: The config that was agreed on.
        least_rows: The fewest rows that an answer may be computed from.

    Returns:
        The policy.

    Raises:
        Refused: The config itself computes answers from fewer rows.
    """
    privacy = privacy_of(config)
    found: dict[str, Any] = {
        "targets": [config.data.target] if config.data.target else [],
        "features": list(config.data.features or []),
        "categories": sorted(known_categories(config.data.categories)),
        "models": [config.model.kind],
        "methods": [config.algorithm.kind],
        "schemes": [config.selection.kind],
        "sites": [config.sites.kind],
        "messages": list(messages_of(config)),
        "plugins": plugins_of(config),
        "runs": [run_digest(config)],
        "least_rows": least_rows,
    }
    if privacy.get("kind", "none") != "none" or privacy.get("sums", "plain") != "plain":
        wanted = ("sums",) if privacy.get("kind", "none") == "none" else ("kind", "epsilon", "delta", "sums")
        found["privacy"] = {"kind": "none", **{key: privacy[key] for key in wanted if privacy.get(key) is not None}}
    policy = Policy.model_validate(found)
    refuse_few_rows(policy, config)
    return policy


def plugins_of(config: Config) -> list[str]:
    """The import paths of the plug-ins that a config names."""
    named: list[tuple[Registry[Any], str]] = [
        (MODELS, config.model.kind),
        (METHODS, config.algorithm.kind),
        (SCHEMES, config.selection.kind),
        (SITES, config.sites.kind),
        (KERNELS, str(getattr(config.algorithm, "kernel", ""))),
        *((METRICS, name) for name in config.evaluate.metrics),
        *((CODECS, config.channel.codec_of(kind)) for kind in KINDS),
    ]
    return sorted({path for registry, name in named if (path := registry.plugin_path(name))})


def policy_text(policy: Policy) -> str:
    """The text of a policy file, with a comment for the operator."""
    return (
        "# What this node answers. A request beyond it is refused before any row is read.\n"
        f'# "{ANY}" in a list allows everything of its kind. runs are digests of configs that were agreed on.\n'
        + tomli_w.dumps(policy.model_dump(exclude_none=True))
    )


def check_request(policy: Policy, kind: str, config: Config) -> None:
    """Check a request, its config, and all requests that follow from its config. No row is read.

    Args:
        policy: What the operator allows.
        kind: The kind of the message.
        config: The config of the run.

    Raises:
        Refused: The policy does not allow something; the text names it.
    """
    if config.data.name == "nodes":
        refuse_other(policy, "data.target", [str(config.data.target)], policy.targets)
        refuse_other(policy, "data.features", list(config.data.features or []), policy.features)
        if "columns" in (kind, *messages_of(config)):  # otherwise the config lists the categories
            refuse_other(policy, "data.categories", list(known_categories(config.data.categories)), policy.categories)
    refuse_other(policy, "model.kind", [config.model.kind], policy.models)
    refuse_other(policy, "algorithm.kind", [config.algorithm.kind], policy.methods)
    refuse_other(policy, "selection.kind", [config.selection.kind], policy.schemes)
    refuse_other(policy, "sites.kind", [config.sites.kind], policy.sites)
    refuse_other(policy, "the message", [kind, *messages_of(config)], policy.messages)
    refuse_few_rows(policy, config)
    refuse_weak_privacy(policy, config)
    if ANY not in policy.runs and (digest := run_digest(config)) not in policy.runs:
        raise Refused(
            f"{policy.source} does not allow this run: the digest of its config is {digest}, which is not in runs; if "
            "you agree with the config, write the digest there"
        )


def refuse_other(policy: Policy, key: str, asked: Sequence[str], allowed: Sequence[str]) -> None:
    """Raise ``Refused`` unless everything in ``asked`` is allowed."""
    if ANY in allowed:
        return
    if other := [name for name in asked if name not in allowed]:
        raise Refused(
            f"{policy.source} does not allow {key} = {other[0]!r}; it allows: {', '.join(allowed) or 'nothing'}"
        )


def refuse_few_rows(policy: Policy, config: Config) -> None:
    """Raise ``Refused`` if the config makes clients compute answers from too few rows at a time."""
    least = policy.least_rows
    for key, rows in (
        ("algorithm.batch_size", getattr(config.algorithm, "batch_size", 0)),
        ("selection.report_rows", getattr(config.selection, "report_rows", 0)),
    ):
        if 0 < (rows or 0) < least:
            raise Refused(f"{policy.source} does not allow {key} = {rows}; it allows no fewer than {least} rows")


def refuse_small(policy: Policy | None, rows: int, what: str) -> None:
    """Raise ``Refused`` if an answer would be computed from too few rows. The text does not give their number.

    Args:
        policy: What the operator allows; None allows everything.
        rows: The number of rows.
        what: A name of these rows, for the message.
    """
    if policy is not None and rows < policy.least_rows:
        raise Refused(f"{policy.source} allows no answer from fewer than {policy.least_rows} {what}")


def privacy_of(config: Config) -> dict[str, Any]:
    """The keys of the run's ``[privacy]``; empty if it has none."""
    return dict(config.to_dict().get("privacy") or {})


def refuse_weak_privacy(policy: Policy, config: Config) -> None:
    """Raise ``Refused`` unless the run's ``[privacy]`` is at least as strict as the policy's."""
    least, given = policy.privacy, privacy_of(config)
    if least is None:
        return
    level = str(given.get("kind", "none"))
    if level not in LEVELS or LEVELS.index(level) < LEVELS.index(least.kind):
        raise Refused(f"{policy.source} does not allow privacy.kind = {level!r}; it demands {least.kind!r}")
    if level == "client" and least.kind == "record":
        refuse_weak_for_rows(policy, least, given)
    for key, most in (("epsilon", least.epsilon), ("delta", least.delta)):
        if least.kind != "none" and most is not None and not (given.get(key) is not None and given[key] <= most):
            raise Refused(
                f"{policy.source} does not allow privacy.{key} = {given.get(key)}; it allows at most {most:g}"
            )
    if least.sums == "secure" and given.get("sums", "plain") != "secure":
        raise Refused(f"{policy.source} does not allow privacy.sums = 'plain'; it demands 'secure'")


def refuse_weak_for_rows(policy: Policy, least: PrivacyDemand, given: dict[str, Any]) -> None:
    """Raise ``Refused`` if client-level privacy protects single rows less than the policy demands.

    Two shards that differ in one row are each one step from the empty shard, so they are two steps apart, and the mu of
    a row is twice the mu of the client (``privacy.accounting``).
    """
    if least.epsilon is None:
        return
    mu, delta = mu_of(given["epsilon"], given["delta"]), least.delta or given["delta"]
    if (of_row := epsilon_of(2 * mu, delta)) > least.epsilon:
        raise Refused(
            f"{policy.source} demands epsilon {least.epsilon:g} for every row; privacy.kind = 'client' with epsilon "
            f"{given['epsilon']:g} promises {of_row:.3g} for a row; it needs a smaller epsilon"
        )
