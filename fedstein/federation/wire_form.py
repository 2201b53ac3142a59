"""Storing the encoded messages of a site in place of the site, which takes fewer bytes on disk.

The shared arrays of a site come from two messages: the client's last update and, if reports renew sites, the last
report that renewed this site. Decoding them again gives the same bits, so a file can hold the messages in place of the
arrays. It also holds the points of the broadcast, because an update's points are differences from them, and a renewed
site is expanded at them: eta = g + Lambda theta.

Before an array is left out, the messages are decoded and the result is compared with the array bit for bit. An array
that cannot be computed from the messages, such as a site that a report has renewed in part, is stored in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.channel import ALL_CLIENTS, NOTHING, POINTS, Wire
from fedstein.federation.packing import pack
from fedstein.inference.sites.base import Arrays, State
from fedstein.selection.base import SCORE

PREFIX = "wire/"  # the prefix of arrays that are parts of messages
PARTS = ("update", "held", "report", "heard")  # the arrays of ``Origin``, by the beginning of their names
ROUNDS = PREFIX + "rounds"  # the rounds of the update and of the report


class Origin(NamedTuple):
    """The encoded messages from which a site was decoded."""

    client: int
    round: int  # the round of the update
    update: Arrays
    held: Arrays  # the broadcast of that round, if the client held it
    renewed: int = 0  # the round of the report; 0 if no report has renewed the site
    report: Mapping[str, Any] = NOTHING
    heard: Mapping[str, Any] = NOTHING  # the broadcast that the report answers


def rounds_off(wire: Wire) -> bool:
    """Tell whether messages of the run take fewer bytes than their decoded arrays: some codec is not ``plain``."""
    return any(codec.name != "plain" for codec in wire.codecs.values())


def compact(wire: Wire, origin: Origin | None, state: Mapping[str, Any], shared: tuple[str, ...]) -> Arrays:
    """Write a state with messages in place of the arrays that can be decoded from them.

    Args:
        wire: The codecs of the run.
        origin: The messages; None if they are not known.
        state: The client's state.
        shared: The arrays of the state that come from messages.

    Returns:
        The arrays to store. This is the state itself if it is smaller, or if nothing can be decoded from the messages.
    """
    arrays = dict(state)
    if origin is None or not rounds_off(wire):
        return arrays
    found, best = arrays, _size(arrays)
    for tried in _attempts(wire, origin, shared):
        given = restored(wire, tried)
        same = {name for name in shared if name in given and name in arrays and _alike(given[name], arrays[name])}
        written = {name: array for name, array in arrays.items() if name not in same} | _written(tried)
        if same and _size(written) < best:
            found, best = written, _size(written)
    return found


def expand(wire: Wire, client: int, arrays: Arrays) -> tuple[State, Origin | None]:
    """Read what ``compact`` wrote.

    Args:
        wire: The codecs of the run.
        client: The client.
        arrays: What was stored.

    Returns:
        The client's state, and the messages that it came from; None in their place if the state was stored in full.

    Raises:
        FedsteinError: The messages cannot be decoded.
    """
    kept = {name: array for name, array in arrays.items() if not name.startswith(PREFIX)}
    if ROUNDS not in arrays:
        return kept, None
    number, renewed = (int(n) for n in np.asarray(arrays[ROUNDS]))
    parts: dict[str, Arrays] = {part: {} for part in PARTS}
    for name, array in arrays.items():
        part, _, own = name.removeprefix(PREFIX).partition("/")
        if name.startswith(PREFIX) and name != ROUNDS:
            if part not in parts or not own:
                raise FedsteinError(f"a stored site holds {name!r}, which is no part of a message")
            parts[part][own] = array
    origin = Origin(client, number, parts["update"], parts["held"], renewed, parts["report"], parts["heard"])
    return {**restored(wire, origin), **kept}, origin


def restored(wire: Wire, origin: Origin) -> Arrays:
    """Compute the arrays from the messages."""
    client, number = origin.client, origin.round
    held = wire.decode("broadcast", number, ALL_CLIENTS, origin.held) if origin.held else NOTHING
    found = wire.decode("update", number, client, origin.update, held)
    shift, precision = wire.natural
    if origin.renewed and precision in found:
        theta = wire.decode("broadcast", origin.renewed, ALL_CLIENTS, dict(origin.heard))[POINTS]
        report = wire.decode("report", origin.renewed, client, dict(origin.report))
        if SCORE in report:
            # As ``renew`` of the sites computes it, product and sum each rounded.
            found = {
                **found,
                shift: jnp.asarray(np.asarray(found[precision]) * np.asarray(theta) + np.asarray(report[SCORE])),
            }
    return {name: array for name, array in found.items() if name != POINTS}


def _attempts(wire: Wire, origin: Origin, shared: tuple[str, ...]) -> list[Origin]:
    """List the forms to try: the update with or without the broadcast, or only the precision of a renewed site."""
    bare = origin._replace(renewed=0, report={}, heard={})
    if not origin.renewed:
        return [bare, bare._replace(held={})]
    precision = wire.natural[1]
    encoded = wire.unpack(origin.update)
    part = {name: array for name, array in encoded.items() if name == precision or name.startswith(precision + ".")}
    part = part if wire.packing == "none" else pack(part)
    return [origin._replace(update=part, held={}), bare._replace(update=part, held={})] if precision in shared else []


def _written(origin: Origin) -> Arrays:
    groups = zip(PARTS, (origin.update, origin.held, origin.report, origin.heard), strict=True)
    arrays = {f"{PREFIX}{part}/{name}": array for part, group in groups for name, array in group.items()}
    return {**arrays, ROUNDS: np.array([origin.round, origin.renewed], np.int64)}


def _size(arrays: Mapping[str, Any]) -> int:
    return sum(int(array.nbytes) for array in arrays.values())


def _alike(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
