"""Checks of configs with secure sums, and which sums of a run are secure."""

from __future__ import annotations

from fedstein.data import is_open
from fedstein.errors import InputError
from fedstein.federation.secure_sum import LEAST
from fedstein.runs.schema import Sections

SUMMED = ("columns", "scale", "sums", "evaluate", "train")  # requests whose replies the server only adds up


def summed_by(config: Sections) -> tuple[str, ...]:
    """The requests of a run on Flower whose replies the server only adds up."""
    given = config.data
    asked = {
        "columns": given.name == "nodes" and is_open(given.categories, given.missing, given.fill),
        "scale": given.name == "nodes" and bool(given.standardize),
        "sums": getattr(config.sites, "structure", "") == "eigen",
        "evaluate": config.evaluate.where == "clients",
        "train": config.privacy.on and sums_are_secure(config),
    }
    return tuple(kind for kind in SUMMED if asked[kind])


def sums_are_secure(config: Sections) -> bool:
    """Whether these replies are masked, so that the server sees only their sum."""
    return config.privacy.sums == "secure"


def check_sums(config: Sections) -> None:
    """Refuse secure sums that are impossible or useless in this run.

    Args:
        config: A config whose sections are valid each on its own.

    Raises:
        InputError: They are impossible or useless; the message says why, and what to set.
    """
    if not sums_are_secure(config):
        return
    said, given = "privacy.sums = 'secure'", config.data
    if config.engine.kind != "flower" and not config.privacy.on:  # a private run in process simulates shared noise
        raise InputError(
            f"{said} needs engine.kind = 'flower', got {config.engine.kind!r}: in one process there is nobody to hide "
            "sums from; leave it out"
        )
    clients = config.partition.clients - len(config.selection.barred or ())
    if clients < LEAST:
        raise InputError(
            f"{said} needs at least {LEAST} clients, got {clients}: a sum over fewer shows what each of them added"
        )
    found = given.name == "nodes" and bool(given.categories or given.fill)  # a secure sum may have found them
    if not summed_by(config) and not found:
        raise InputError(
            f"{said} has no use here: nothing of this run is a sum over clients (categories and data.standardize on "
            "nodes, sites.structure = 'eigen', evaluate.where = 'clients'); leave it out"
        )
