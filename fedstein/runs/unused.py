"""Keys that a config does not use: refused if the user's settings contradict each other, noted if they are leftovers.

A key is unused if the kind of its section does not take it, or if another key rules it out (``DEPENDENCIES``). The key
that decides this is its *decider*: ``selection.kind`` for ``selection.pool``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedstein.errors import InputError
from fedstein.privacy.settings import PrivacySettings
from fedstein.runs.config_sources import Layer, combine, layer_of
from fedstein.runs.defaults import drafted, local_particles
from fedstein.runs.draft import Draft, Facts
from fedstein.runs.sections import FAMILIES, SECTIONS, takers


class KeyDependency(NamedTuple):
    """A key that only some values of another key allow.

    Attributes:
        key: The key.
        decider: The other key.
        useful: Draft -> whether the key has a use.
        remedy: What to set, for the message.
    """

    key: str
    decider: str
    useful: Callable[[Draft], bool]
    remedy: str


PRIVATE_KEYS = tuple(key for key in PrivacySettings.model_fields if key not in ("kind", "sums"))

DEPENDENCIES = (
    KeyDependency("algorithm.distill_steps", "sites.kind", local_particles, "sites.kind = 'particles'"),
    KeyDependency("algorithm.prior", "sites.kind", local_particles, "sites.kind = 'particles'"),
    KeyDependency(
        "sites.rank", "sites.structure", lambda d: d["sites.structure"] == "eigen", "sites.structure = 'eigen'"
    ),
    KeyDependency(
        "evaluate.fraction", "evaluate.where", lambda d: d["evaluate.where"] == "clients", "evaluate.where = 'clients'"
    ),
    *(
        KeyDependency(
            f"privacy.{key}", "privacy.kind", lambda d: d["privacy.kind"] != "none", "privacy.kind = 'record'"
        )
        for key in PRIVATE_KEYS
    ),
    *(
        KeyDependency(f"robust.{key}", "robust.kind", lambda d: d["robust.kind"] != "none", "robust.kind = 'bounded'")
        for key in ("pull", "curvature")
    ),
    KeyDependency("data.test_fraction", "data.test_path", lambda d: not d["data.test_path"], "no data.test_path"),
)


class Unused(NamedTuple):
    """A key that the user wrote and that the config does not use."""

    key: str
    decider: str
    why: str  # the reason, as notes give it
    remedy: str  # the settings with which the key has a use


def unused_keys(draft: Draft) -> list[Unused]:
    """Find the keys that are not used.

    Args:
        draft: A draft to which the rules have been applied.

    Returns:
        The keys that the user wrote and that have no use, in the order of the sections.
    """
    found = []
    for key in draft.written:
        section, _, name = key.rpartition(".")
        if section in FAMILIES and name not in draft.settings(section).model_fields:
            decider = f"{section}.kind"
        elif section == "data" and name not in ("name", *draft.dataset.keys):
            decider = "data.name"
        else:
            continue
        goes_with = " or ".join(map(repr, takers(section, name)))
        found.append(Unused(key, decider, f"{decider} is {draft[decider]!r}", f"{decider} = {goes_with}"))
    already = {unused.key for unused in found}
    for tie in DEPENDENCIES:
        if draft.wrote(tie.key) and tie.key not in already and not tie.useful(draft):
            why = f"{tie.decider} is {draft[tie.decider]!r}"
            found.append(Unused(tie.key, tie.decider, why, tie.remedy))
    return sorted(found, key=lambda unused: SECTIONS.index(unused.key.partition(".")[0]))


def refuse_contradictions(draft: Draft, layers: Sequence[Layer], facts: Facts) -> tuple[list[str], list[str]]:
    """Refuse unused keys that contradict the same layer or an earlier one, and drop the others.

    If a later layer sets the decider of a key, the key is a leftover of a base and is dropped. If the decider is a
    default, a key is a leftover if it had a use before later layers changed that default.

    Args:
        draft: The draft of all layers.
        layers: The layers. Later layers take precedence.
        facts: What is known about the data.

    Returns:
        The keys to drop, and a note on each.

    Raises:
        InputError: An unused key is not a leftover.
    """
    dropped = unused_keys(draft)
    for unused in dropped:
        written, decided = layer_of(layers, unused.key), layer_of(layers, unused.decider)
        assert written is not None, "an unused key is one that some layer has"
        if decided is None:
            before = drafted(combine(layers[: written + 1]), facts)
            contradicts = unused.key in {other.key for other in unused_keys(before)}
        else:
            contradicts = decided <= written
        if contradicts:
            default = " by default" if decided is None else ""
            raise InputError(
                f"{unused.key} is not used: {unused.why}{default}; remove it, or set what it goes with: {unused.remedy}"
            )
    return [unused.key for unused in dropped], [f"{unused.key} is not used: {unused.why}" for unused in dropped]
