"""Checks of ``[robust]``: a config that the bounds on lying clients do not support is refused before the run starts."""

from __future__ import annotations

from fedstein.errors import InputError
from fedstein.inference.sites import CurvatureSettings
from fedstein.runs.schema import Sections


def check_robust(config: Sections) -> None:
    """Refuse combinations of ``[robust]`` with parts that do not support it.

    Args:
        config: A config whose sections are valid each on its own.

    Raises:
        InputError: Two parts contradict each other; the message says which, and what to set.
    """
    robust, clients = config.robust, config.partition.clients - len(config.selection.barred or ())
    per_round = config.selection.per_round
    if robust.rest and config.privacy.on:
        raise InputError(
            f"robust.rest = {robust.rest} with privacy.kind = {config.privacy.kind!r}: a private run visits no client "
            "more than privacy.visits times, so nobody can be chosen too often; set robust.rest = 0"
        )
    if robust.rest and (robust.rest + 1) * per_round > clients:
        raise InputError(
            f"robust.rest = {robust.rest} with selection.per_round = {per_round} and {clients} clients: after "
            f"{clients // per_round} rounds all of them would rest; take at most {clients // per_round - 1}"
        )
    if robust.kind == "none":
        return
    said = f"robust.kind = {robust.kind!r}"
    if config.privacy.on:
        raise InputError(
            f"{said} with privacy.kind = {config.privacy.kind!r}: the noise of a private site hides lies, and noisy "
            "sites are not bounded; set one of them to 'none'"
        )
    if config.algorithm.kind != "dsvgd":
        raise InputError(
            f"{said} works with algorithm.kind = 'dsvgd', got {config.algorithm.kind!r}: other methods put updates "
            "together in their own way; set it, or set robust.kind = 'none'"
        )
    sites = config.sites
    if not isinstance(sites, CurvatureSettings) or sites.structure != "full":
        raise InputError(
            f"{said} needs sites.kind = 'curvature' and sites.structure = 'full': particles of other sites come from "
            "clients as they are; set them, or set robust.kind = 'none'"
        )
    if sites.expand == "variational":
        raise InputError(
            f"{said} with sites.expand = 'variational': the passes after the last round add up what clients send; set "
            "expand to 'mean', or robust.kind to 'none'"
        )
    if clients < 3:
        raise InputError(
            f"{said} with {clients} clients: the bounds are medians over clients, which need three; "
            "take three clients or more, or set robust.kind = 'none'"
        )
