"""Checks of a config: unknown names, impossible values, and parts that do not fit together.

Parts state what they can do and what they need. The checks compare these capabilities, so that plug-ins are checked
like built-in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedstein.data import DATASETS
from fedstein.errors import InputError
from fedstein.evaluation.metrics import choose_metrics
from fedstein.federation.codecs import CODECS
from fedstein.federation.engine import LocalEngineSettings
from fedstein.inference.sites import CurvatureSettings
from fedstein.models import MODELS
from fedstein.registry import unknown_name
from fedstein.runs.draft import Draft
from fedstein.runs.privacy_checks import check_privacy
from fedstein.runs.robust_checks import check_robust
from fedstein.runs.schema import TOP, Sections
from fedstein.runs.sections import CUSTOM, FAMILIES, SECTIONS, all_classes, all_keys, find_kind, loaded_kinds
from fedstein.runs.secure_checks import check_sums
from fedstein.runs.values import complaint, literal_choices
from fedstein.selection import ReportingSettings
from fedstein.selection.unbiased import UnbiasedSettings
from fedstein.stein import KERNELS


def check_names(raw: Mapping[str, Any], custom: bool = False) -> None:
    """Refuse unknown sections and keys, and unknown values of keys that hold names.

    Args:
        raw: A nested config.
        custom: Whether the config may name a model that was passed to ``fedstein.fit``.

    Raises:
        InputError: Something is unknown; the message lists what is valid.
    """
    for name, value in raw.items():
        if name in TOP:
            if isinstance(value, Mapping):
                raise InputError(f"{name} must be a value, got a section")
        elif name not in SECTIONS:
            raise InputError(unknown_name("key", name, [*TOP, *SECTIONS]))
        elif not isinstance(value, Mapping):
            raise InputError(f"[{name}] must be a section of keys, got {value!r}")
        else:
            own = custom and name == "model" and value.get("kind") == CUSTOM
            if name in FAMILIES and "kind" in value and not own:
                find_kind(name, value["kind"])
            _check_keys(name, value)


def _check_keys(section: str, values: Mapping[str, Any]) -> None:
    for key, given in values.items():
        classes = [settings for settings in all_classes(section) if key in settings.model_fields]
        if not classes:
            raise InputError(unknown_name(f"key in [{section}]", key, all_keys(section)))
        allowed = [literal_choices(settings.model_fields[key].annotation) for settings in classes]
        choices = list(dict.fromkeys(choice for some in allowed for choice in some))
        if all(allowed) and given not in choices:
            raise InputError(unknown_name(f"value of {section}.{key}", given, choices))


def check_values(raw: Mapping[str, Any]) -> None:
    """Refuse values that no kind of their section accepts, even if the chosen kind does not use the key.

    Args:
        raw: A nested config whose names are known.

    Raises:
        InputError: A value is never valid.
    """
    for section, values in raw.items():
        for key, value in values.items() if isinstance(values, Mapping) else ():
            classes = [settings for settings in all_classes(section) if key in settings.model_fields]
            complaints = [complaint(settings, section, key, value) for settings in classes]
            if complaints and all(complaints):
                raise InputError(complaints[0])


def check_nodes(draft: Draft) -> None:
    """Refuse a run over nodes without the number of clients, which the server cannot find out.

    Raises:
        InputError: ``partition.clients`` is missing, or the partition is not that of the nodes.
    """
    if draft.dataset.origin == "nodes" and (
        not draft.wrote("partition.clients") or draft["partition.kind"] != draft.dataset.partition
    ):
        raise InputError(
            'expected partition.clients with data.name = "nodes": how many nodes take part, each with its own rows '
            "(partition.kind is 'given'); set it"
        )


def check_fit(config: Sections) -> None:
    """Refuse parts that do not fit together.

    Args:
        config: A config whose sections are valid each on its own.

    Raises:
        InputError: Two parts contradict each other; the message says which, and what to set.
    """
    for check in (
        _check_names_inside,
        _check_parts,
        _check_nodes_engine,
        _check_clients,
        _check_sites,
        _check_model,
        _check_evaluation,
        check_sums,
        check_privacy,
        check_robust,
    ):
        check(config)


def _names(section: str, able: Callable[[Any], bool]) -> list[str]:
    """The kinds that have a capability."""
    return [name for name, part in loaded_kinds(section).items() if able(part)]


def _check_names_inside(config: Sections) -> None:
    CODECS.find(config.channel.codec)
    kernel = getattr(config.algorithm, "kernel", None)
    if kernel is not None:
        KERNELS.find(kernel)
    choose_metrics(config.evaluate.metrics)


def answerable(scheme: Any, method: Any) -> bool:
    """Whether clients of a method can compute the reports of a scheme."""
    if not method.answers_reports:
        return not scheme.asks
    return method.answers_tilted or not scheme.needs_tilted


def _check_parts(config: Sections) -> None:
    method, site = find_kind("algorithm", config.algorithm.kind), find_kind("sites", config.sites.kind)
    scheme, chosen = find_kind("selection", config.selection.kind), f"algorithm.kind = {config.algorithm.kind!r}"
    if site.keeps_state != method.uses_sites:
        usable = _names("sites", lambda part: part.keeps_state == method.uses_sites)
        ordered = dict.fromkeys([method.sites, *usable])
        raise InputError(f"sites.kind = {config.sites.kind!r} does not go with {chosen}; use {' or '.join(ordered)}")
    mute = scheme.asks and not method.answers_reports
    if mute or (scheme.needs_tilted and not method.answers_tilted):
        usable = _names(
            "selection", lambda part: answerable(part, method) and (site.has_score or not part.needs_site_score)
        )
        raise InputError(
            f"selection.kind = {config.selection.kind!r} does not go with {chosen}; use {' or '.join(usable)}"
        )
    if isinstance(config.selection, UnbiasedSettings) and config.selection.unbiased:
        if not method.averages:
            usable = _names("algorithm", lambda part: part.averages)
            raise InputError(
                f"selection.unbiased = true weighs updates that are averaged, which {chosen} does not do; leave it "
                f"out, or use {' or '.join(usable)}"
            )
        if config.selection.draw != "proportional":
            raise InputError(
                f"selection.unbiased = true needs selection.draw = 'proportional', got {config.selection.draw!r}: the "
                "weights are one over the probabilities of that draw"
            )
    if config.algorithm.particles < method.least_particles:
        raise InputError(
            f"algorithm.particles = {config.algorithm.particles} is too few for {chosen}; "
            f"take at least {method.least_particles}"
        )
    if scheme.needs_site_score and not site.has_score:
        wanted = " or ".join(map(repr, _names("sites", lambda part: part.has_score)))
        others = ", ".join(_names("selection", lambda part: not part.needs_site_score))
        raise InputError(
            f"selection.kind = {config.selection.kind!r} needs sites.kind = {wanted}, got {config.sites.kind!r}; "
            f"set it, or choose a scheme for any sites: {others}"
        )


def _check_nodes_engine(config: Sections) -> None:
    if config.data.name not in DATASETS or DATASETS[config.data.name].origin != "nodes":
        return
    if isinstance(config.engine, LocalEngineSettings):
        raise InputError(
            'data.name = "nodes" needs engine.kind = "flower": every row is with its node; use fedstein deploy app'
        )
    if config.partition.order != "dealt":
        raise InputError(
            f"partition.order = {config.partition.order!r} needs rows at the server, and with data.name = 'nodes' they "
            "are with the nodes; leave it at 'dealt'"
        )
    if config.evaluate.where == "server" and not config.data.test_path and not config.privacy.on:
        raise InputError(
            "evaluate.where = 'server' needs test rows at the server: set data.test_path, or let the clients "
            "evaluate (evaluate.where = 'clients')"
        )


def _check_clients(config: Sections) -> None:
    clients, per_round, barred = config.partition.clients, config.selection.per_round, config.selection.barred or []
    if len(set(barred)) < len(barred) or any(client >= clients for client in barred) or len(barred) >= clients:
        raise InputError(
            f"selection.barred = {barred}: expected different ids from 0 to {clients - 1}, at least one left out"
        )
    if per_round > clients - len(barred):
        left = f" without the {len(barred)} of selection.barred" if barred else ""
        raise InputError(
            f"selection.per_round = {per_round} is more than partition.clients = {clients}{left}; lower per_round"
        )
    pool = config.selection.pool if isinstance(config.selection, ReportingSettings) else 0
    if 0 < pool < per_round:
        raise InputError(f"selection.pool = {pool} is less than selection.per_round = {per_round}; raise pool")
    if pool > clients:
        raise InputError(f"selection.pool = {pool} is more than partition.clients = {clients}; use 0 to ask all")


def _check_sites(config: Sections) -> None:
    sites = config.sites
    if isinstance(sites, CurvatureSettings) and sites.settle and sites.structure != "full":
        raise InputError(f"sites.settle needs sites.structure = 'full', got {sites.structure!r}; set it to false")
    if isinstance(sites, CurvatureSettings) and sites.expand == "variational" and sites.structure != "full":
        raise InputError(
            f"sites.expand = 'variational' needs sites.structure = 'full', got {sites.structure!r}; set it to 'mean'"
        )
    if isinstance(sites, CurvatureSettings) and sites.expand == "variational" and sites.stiffness != 1.0:
        raise InputError(
            f"sites.expand = 'variational' takes the curvature as it is, got sites.stiffness = {sites.stiffness}; "
            "leave stiffness at 1, or set expand to 'mean'"
        )
    if isinstance(sites, CurvatureSettings) and sites.expand == "variational" and config.evaluate.temperature == "fit":
        raise InputError(
            "evaluate.temperature = 'fit' scales the predictions of particles, and sites.expand = 'variational' leaves "
            "weighted draws to predict with; set expand to 'mean', or temperature to 'none'"
        )
    if not getattr(sites, "renew", False):
        return
    if not find_kind("selection", config.selection.kind).sends_scores:
        able = " or ".join(map(repr, _names("selection", lambda part: part.sends_scores)))
        raise InputError(
            f"sites.renew needs reports that are scores (selection.kind = {able}), got {config.selection.kind!r}; "
            "set it to false"
        )
    if projection := getattr(config.selection, "projection", 0):
        raise InputError(
            f"sites.renew needs whole scores, got selection.projection = {projection}; set renew to false, or "
            "projection to 0"
        )
    damping = getattr(sites, "damping", 1.0)
    if damping != 1.0:
        raise InputError(f"sites.renew needs sites.damping = 1, got {damping}; set renew to false, or damping to 1")


def _check_model(config: Sections) -> None:
    if config.model.kind == CUSTOM:  # ``fedstein.runs.suitability`` checks the model itself
        return
    if find_kind("model", config.model.kind).traits.whole_shard:
        refuse_pooling(config.model.kind, config.algorithm.kind)
        refuse_row_losses(config.model.kind, config.selection.kind)


def refuse_pooling(model: str, algorithm: str) -> None:
    """Refuse a method that pools rows, for a model whose likelihood needs all rows of a client together.

    Args:
        model: The name of the model in messages. Its ``whole_shard`` is set.
        algorithm: The value of ``algorithm.kind``.

    Raises:
        InputError: The method pools the clients' rows.
    """
    if find_kind("algorithm", algorithm).pooled:
        able = _names("algorithm", lambda part: not part.pooled)
        raise InputError(
            f"algorithm.kind = {algorithm!r} pools the clients' rows, and model {model!r} has an intercept for each "
            f"client, which pooling would make one; use algorithm.kind = {' or '.join(map(repr, able))}, or a model "
            "without client effects"
        )


def refuse_row_losses(model: str, scheme: str) -> None:
    """Refuse a scheme that needs the loss of every row, for a model whose likelihood needs all rows of a client.

    Args:
        model: The name of the model in messages. Its ``whole_shard`` is set.
        scheme: The value of ``selection.kind``.

    Raises:
        InputError: The scheme needs the losses of single rows.
    """
    if find_kind("selection", scheme).needs_row_losses:
        able = _names("selection", lambda part: not part.needs_row_losses)
        raise InputError(
            f"selection.kind = {scheme!r} needs the loss of every row, and the likelihood of model {model!r} is of "
            f"all rows of a client together; use one of: {', '.join(able)}"
        )


def _check_evaluation(config: Sections) -> None:
    if config.evaluate.temperature == "fit":
        if config.evaluate.where != "clients":
            raise InputError(
                f"evaluate.temperature = 'fit' with evaluate.where = {config.evaluate.where!r}: it is fitted "
                "on rows that clients hold out, never on test rows; set evaluate.where = 'clients'"
            )
        kind = config.model.kind
        if kind in MODELS and MODELS[kind].task != "classification":
            raise InputError(f"evaluate.temperature = 'fit' is for classifications; model.kind = {kind!r} is none")
    if config.evaluate.patience is not None and config.evaluate.where != "clients":
        raise InputError(
            f"evaluate.patience = {config.evaluate.patience} with evaluate.where = {config.evaluate.where!r}: a run "
            "ends early by rows that clients hold out, never by test rows; set evaluate.where = 'clients'"
        )
    if config.evaluate.join and config.evaluate.where != "clients":
        raise InputError(
            f"evaluate.join = true with evaluate.where = {config.evaluate.where!r}: only an evaluation by clients is a "
            "message that reports can join; set evaluate.where = 'clients', or leave evaluate.join out"
        )
    if config.evaluate.join and config.privacy.sums == "secure":
        raise InputError(
            "evaluate.join = true with privacy.sums = 'secure': a secure sum takes four messages of its own, which "
            "reports cannot join; leave evaluate.join out"
        )
    if config.evaluate.join and not find_kind("selection", config.selection.kind).asks:
        raise InputError(
            f"evaluate.join = true with selection.kind = {config.selection.kind!r}: it asks for no reports, so there "
            "is nothing to join; leave evaluate.join out"
        )
    if getattr(config.selection, "speculate", 0) and config.evaluate.join:
        raise InputError(
            "selection.speculate with evaluate.join = true: reports that come with an evaluation come before a round "
            "begins, when nobody may train yet; leave one of them out"
        )
    if getattr(config.selection, "speculate", 0) and getattr(config.sites, "renew", False):
        raise InputError(
            f"selection.speculate = {config.selection.speculate} with sites.renew = true: reports change the sites "  # type: ignore[attr-defined]
            "that training starts from, so nobody can train before all reports are there; set sites.renew = false or "
            "leave selection.speculate out"
        )
    if (config.evaluate.where == "clients") != (config.evaluate.fraction is not None):
        raise InputError(
            f"evaluate.where = {config.evaluate.where!r} with evaluate.fraction = {config.evaluate.fraction}: expected "
            "a fraction with 'clients' and none with 'server'; set both, or neither"
        )
