"""Sites as they travelled: the same bits from fewer bytes, and what messages do not give is kept as it is."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import FedsteinError
from fedstein.federation.channel import ALL_CLIENTS, KINDS, Wire
from fedstein.federation.codecs import CODECS
from fedstein.federation.wire_form import PREFIX, ROUNDS, Origin, compact, expand

LAYOUT = ((12, 4), (3, 0), (2, 0))
SHARED = ("eta", "precision")


def make_wire(codec: str = "int4", packing: str = "none") -> Wire:
    return Wire(dict.fromkeys(KINDS, CODECS[codec]), 5, "float32", LAYOUT, SHARED, packing)


def arrays(seed: int, count: int) -> list[Any]:
    return [jnp.asarray(a) for a in np.random.default_rng(seed).normal(size=(count, 40, 17)).astype(np.float32)]


def trained(wire: Wire, client: int = 2, number: int = 3) -> tuple[Origin, dict[str, Any]]:
    """The messages of a training, and the state that they leave at server and client."""
    theta, move, eta, root = arrays(0, 4)
    held = wire.encode("broadcast", number, ALL_CLIENTS, {"particles": theta})
    received = wire.decode("broadcast", number, ALL_CLIENTS, held)
    sent = {"particles": received["particles"] + 0.01 * move, "eta": eta, "precision": root**2}
    update = wire.encode("update", number, client, sent, received)
    decoded = wire.decode("update", number, client, update, received)
    return Origin(client, number, update, held), {**{name: decoded[name] for name in SHARED}, "own": theta}


def renewed(wire: Wire, origin: Origin, state: dict[str, Any], share: float) -> tuple[Origin, dict[str, Any]]:
    """The same after a report of a later round, as ``renew`` of curvature sites computes it."""
    theta, score = arrays(1, 2)
    heard = wire.encode("broadcast", 7, ALL_CLIENTS, {"particles": theta})
    report = wire.encode("report", 7, origin.client, {"score": score})
    new = np.asarray(state["precision"]) * np.asarray(wire.decode("broadcast", 7, ALL_CLIENTS, heard)["particles"])
    new += np.asarray(wire.decode("report", 7, origin.client, report)["score"])
    if share < 1:
        new -= np.asarray(state["eta"])
        new *= np.float32(share)
        new += np.asarray(state["eta"])
    return origin._replace(renewed=7, report=report, heard=heard), {**state, "eta": jnp.asarray(new)}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        np.asarray(one[k]).tobytes() == np.asarray(other[k]).tobytes() for k in one
    )


def size(stored: dict[str, Any], names: tuple[str, ...] = ()) -> int:
    return sum(np.asarray(a).nbytes for name, a in stored.items() if name not in names)


@pytest.mark.parametrize("packing", ["none", "deflate"])
@pytest.mark.parametrize("codec", ["int4", "int8", "mixed", "bfloat16"])
def test_a_site_comes_back_bit_for_bit_from_its_update(codec: str, packing: str):
    wire = make_wire(codec, packing)
    origin, state = trained(wire)
    stored = compact(wire, origin, state, SHARED)
    assert {name for name in stored if not name.startswith(PREFIX)} == {"own"}, "what is private is kept as it is"
    found, again = expand(wire, origin.client, stored)
    assert same(found, state)
    assert again is not None
    assert same(compact(wire, again, found, SHARED), stored), "after a resume it is written alike"


@pytest.mark.parametrize("packing", ["none", "deflate"])
def test_a_renewed_site_comes_back_from_the_precision_and_the_report(packing: str):
    wire = make_wire("int4", packing)
    origin, state = renewed(wire, *trained(wire), share=1.0)
    stored = compact(wire, origin, state, SHARED)
    assert not {"eta", "precision"} & set(stored)
    assert size(stored, ("own",)) < 0.45 * size(state, ("own",))
    found, again = expand(wire, origin.client, stored)
    assert same(found, state)
    assert again is not None
    assert same(compact(wire, again, found, SHARED), stored)


def test_what_messages_do_not_give_is_kept_as_it_is() -> None:
    wire = make_wire()
    origin, state = renewed(wire, *trained(wire), share=0.5)
    stored = compact(wire, origin, state, SHARED)
    assert "eta" in stored, "a site that was renewed in part depends on the one before it"
    assert "precision" not in stored
    assert same(expand(wire, origin.client, stored)[0], state)
    other = {**state, "precision": state["precision"] + 1}
    assert same(compact(wire, origin, other, SHARED), other)


def test_plain_messages_and_unknown_origins_leave_states_as_they_are() -> None:
    wire = make_wire("plain")
    origin, state = trained(wire)
    assert same(compact(wire, origin, state, SHARED), state)
    assert same(compact(make_wire(), None, state, SHARED), state)
    assert expand(wire, 2, state) == (state, None)


def test_a_part_of_no_message_is_refused() -> None:
    wire = make_wire()
    origin, state = trained(wire)
    stored = {**compact(wire, origin, state, SHARED), PREFIX + "other/eta": np.zeros(3)}
    assert ROUNDS in stored
    with pytest.raises(FedsteinError, match="no part of a message"):
        expand(wire, 2, stored)
