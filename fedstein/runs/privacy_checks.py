"""Checks of private runs: a config that would send an unprotected message is refused before the run starts."""

from __future__ import annotations

from fedstein.data import DATASETS, is_open
from fedstein.errors import InputError
from fedstein.federation.secure_sum import LEAST, least_threshold
from fedstein.inference.sites import CurvatureSettings
from fedstein.privacy.guard import refuse
from fedstein.privacy.mechanism import NETWORKS, SUPPORTED
from fedstein.runs.schema import Sections

# Round robin and random need no indicators; the others are computed from noisy sites (``inference.noisy_target``).
SCHEMES = ("round_robin", "random", "ksd", "hip", "innovation")


def check_privacy(config: Sections) -> None:
    """Refuse a private run that would need messages which are not protected.

    Args:
        config: A config whose sections are valid each on its own.

    Raises:
        InputError: A part would send or need an unprotected message; the error says which part, and what to set.
    """
    privacy = config.privacy
    if not privacy.on:
        return
    said = f"privacy.kind = {privacy.kind!r}"
    if config.algorithm.kind == "pvi":
        _check_pvi(config)
        _check_messages(config)
        return
    if config.algorithm.kind != "dsvgd":
        raise InputError(
            f"{said} works with algorithm.kind = 'dsvgd' or 'pvi', got {config.algorithm.kind!r}: what clients of "
            "other methods send is not protected; set it, or leave it out"
        )
    network = config.model.kind in NETWORKS
    if config.model.kind not in (*SUPPORTED, *NETWORKS):
        raise InputError(
            f"{said} works with model.kind = {', '.join(map(repr, SUPPORTED))} and, with kind = 'record', "
            f"{', '.join(map(repr, NETWORKS))}, got {config.model.kind!r}: for other models it is not known how much "
            "one row can change what a client sends"
        )
    _check_bounds(config)
    if (privacy.kind == "client") != (privacy.client_rows is not None):
        raise InputError(
            "privacy.client_rows goes with privacy.kind = 'client', which needs it: a public number of rows that a "
            f"client counts as at most; got privacy.kind = {privacy.kind!r}; set both, or leave client_rows out"
        )
    sites = config.sites
    structure = "diagonal" if network else "full"
    if not isinstance(sites, CurvatureSettings) or sites.structure != structure:
        raise InputError(f"{said} needs sites.kind = 'curvature' and sites.structure = {structure!r}; set them")
    if network:
        _check_network(config)
    if sites.expand == "variational":
        refuse("expand", privacy)
    if sites.renew or sites.damping != 1.0 or sites.stiffness != 1.0:
        raise InputError(f"{said} does not use sites.renew, sites.damping and sites.stiffness; leave them out")
    if config.selection.kind not in SCHEMES:
        raise InputError(
            f"{said} works with selection.kind = {' or '.join(map(repr, SCHEMES))}, got {config.selection.kind!r}: "
            "reports are not protected, and what this scheme needs is not known from noisy sites; set it"
        )
    if config.model.kind == "linear" and config.selection.kind not in SCHEMES[:2]:
        raise InputError(
            f"{said} with model.kind = 'linear' works with selection.kind = 'round_robin' or 'random', got "
            f"{config.selection.kind!r}: every visit releases the same sums, so that no choice is better; set it"
        )
    _check_messages(config)


def _check_messages(config: Sections) -> None:
    """Refuse settings that would need messages other than releases."""
    privacy, said = config.privacy, f"privacy.kind = {config.privacy.kind!r}"
    _check_reports(config)
    if config.evaluate.where == "clients":
        refuse("evaluate", privacy)
    if any(config.channel.codec_of(kind) != "plain" for kind in ("assignment", "update")):
        raise InputError(f"{said} needs channel.codec = 'plain' for assignments and updates; set it")
    _check_shared(config)
    if config.engine.kind == "flower" and privacy.ledger:
        raise InputError("privacy.ledger is for runs in process: on nodes ledgers are in their state-dir; leave it out")
    _check_visits(config)
    _check_columns(config)


def _check_network(config: Sections) -> None:
    """Refuse private networks except at record level, with all clients asked at the same point in every round."""
    privacy, selection = config.privacy, config.selection
    clients = config.partition.clients - len(selection.barred or ())
    if privacy.kind != "record" or privacy.sums != "plain":
        raise InputError(
            f"model.kind = {config.model.kind!r} works with privacy.kind = 'record' and privacy.sums = 'plain', got "
            f"{privacy.kind!r} and {privacy.sums!r}: for the others no bound has been derived; set them"
        )
    if selection.kind not in SCHEMES[:2] or selection.per_round != clients:
        raise InputError(
            f"model.kind = {config.model.kind!r} in a private run asks everybody at the same point in every round: "
            f"expected selection.kind = 'round_robin' and selection.per_round = {clients}, got {selection.kind!r} and "
            f"{selection.per_round}; leave them out"
        )


def _check_pvi(config: Sections) -> None:
    """Refuse private partitioned variational inference except at record level, for logistic regression."""
    privacy, said = config.privacy, "algorithm.kind = 'pvi' in a private run"
    if config.model.kind != "blr" or privacy.kind != "record" or privacy.sums != "plain":
        raise InputError(
            f"{said} works with model.kind = 'blr', privacy.kind = 'record' and privacy.sums = 'plain', got "
            f"{config.model.kind!r}, {privacy.kind!r} and {privacy.sums!r}; set them, or use algorithm.kind = 'dsvgd'"
        )
    if config.selection.kind not in SCHEMES[:2]:
        raise InputError(
            f"{said} works with selection.kind = 'round_robin' or 'random', got {config.selection.kind!r}: indicators "
            "are computed from noisy sites, which it has not; set it"
        )
    for key in ("largest_count", "largest_target", "client_rows"):
        if getattr(privacy, key) is not None:
            raise InputError(f"{said} has no use for privacy.{key}; leave it out")


def _check_bounds(config: Sections) -> None:
    """Refuse unbounded targets without a public bound, and a public bound for other targets."""
    for kind, key, what in (("poisson", "largest_count", "count"), ("linear", "largest_target", "target")):
        given = getattr(config.privacy, key)
        if config.model.kind == kind and given is None:
            raise InputError(
                f"privacy.kind = {config.privacy.kind!r} with model.kind = {kind!r} needs privacy.{key}: a public "
                f"bound at which {what}s are cut, because a {what} has none of its own; set it"
            )
        if given is not None and config.model.kind != kind:
            raise InputError(f"privacy.{key} is for model.kind = {kind!r}, got {config.model.kind!r}; leave it out")


def _check_shared(config: Sections) -> None:
    """Refuse shared noise in secure sums unless every round asks all clients."""
    privacy, selection = config.privacy, config.selection
    clients = config.partition.clients - len(selection.barred or ())
    if privacy.sums == "plain":
        for key in ("colluding", "dropouts"):
            if getattr(privacy, key) is not None:
                raise InputError(f"privacy.{key} goes with privacy.sums = 'secure', got 'plain'; leave it out")
        return
    said = "privacy.sums = 'secure' in a private run"
    if clients < LEAST:
        raise InputError(
            f"{said} needs at least {LEAST} clients, got {clients}: a sum over fewer shows what each of them added"
        )
    if selection.kind not in SCHEMES[:2] or selection.per_round != clients:
        raise InputError(
            f"{said} asks everybody in every round: the server sees sums alone, from which nobody can be chosen; "
            f"expected selection.kind = 'round_robin' and selection.per_round = {clients}, got {selection.kind!r} "
            f"and {selection.per_round}; leave them out"
        )
    most = clients - least_threshold(clients)
    if privacy.dropouts is not None and privacy.dropouts > most:
        raise InputError(
            f"privacy.dropouts = {privacy.dropouts} with {clients} clients: expected at most {most}, because more than "
            "two thirds must stay to the end of a secure sum; set fewer"
        )
    if privacy.colluders >= least_threshold(clients):
        raise InputError(
            f"privacy.colluding = {privacy.colluders} with {clients} clients: only {least_threshold(clients)} are sure "
            "to be in a sum, and somebody must be left whose noise is not known; set fewer"
        )


def _check_reports(config: Sections) -> None:
    """Refuse settings about reports, because no client reports in a private run."""
    for key in ("pool", "report_rows", "projection"):
        if value := getattr(config.selection, key, 0):
            raise InputError(
                f"privacy.kind = {config.privacy.kind!r} has no use for selection.{key} = {value}: in a private run "
                "nobody reports, the server computes indicators from the noisy sites that it has; leave it out"
            )


def _check_visits(config: Sections) -> None:
    visits, per_round = config.privacy.visits, config.selection.per_round
    clients = config.partition.clients - len(config.selection.barred or ())
    if config.rounds * per_round > clients * visits:
        raise InputError(
            f"rounds = {config.rounds} with selection.per_round = {per_round} asks {clients} clients more often than "
            f"privacy.visits = {visits}: after that many visits a client's budget is spent; take at most "
            f"{clients * visits // per_round} rounds, or more visits, each of which is then noisier"
        )


def _check_columns(config: Sections) -> None:
    given, name = config.data, config.data.name
    if given.standardize and name in DATASETS:
        refuse("scale", config.privacy)
    if name == "nodes" and is_open(given.categories, given.missing, given.fill):
        refuse("columns", config.privacy)
