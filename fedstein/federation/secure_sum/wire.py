"""Writing the messages of a secure sum as arrays, and a client's state as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedstein.federation.secure_sum import shamir
from fedstein.federation.secure_sum.fixed_point import Words, decode, encode
from fedstein.federation.secure_sum.masks import KEY_BYTES, SEAL_BYTES
from fedstein.federation.secure_sum.member import Member, Publics

PHASES = ("keys", "shares", "masked", "unmasked")
SEALED_BYTES = 2 * shamir.SHARE_BYTES + SEAL_BYTES
Shapes = Mapping[str, tuple[tuple[int, ...], str]]
Arrays = dict[str, np.ndarray]


def ids(clients: Iterable[int]) -> np.ndarray:
    """The ids of clients as an array."""
    return np.array(sorted(clients), np.int64)


def rows_of(texts: Mapping[int, bytes], order: Sequence[int], width: int) -> np.ndarray:
    """Write texts of one length as the rows of an array; a client without a text has zeros."""
    table = np.zeros((len(order), width), np.uint8)
    for row, client in enumerate(order):
        if client in texts:
            table[row] = np.frombuffer(texts[client], np.uint8)
    return table


def read_rows(table: np.ndarray, order: Sequence[int]) -> dict[int, bytes]:
    """Read what ``rows_of`` wrote."""
    return {client: table[row].tobytes() for row, client in enumerate(order)}


def write_publics(publics: Publics) -> np.ndarray:
    """Public keys as an array."""
    return np.frombuffer(publics.seal + publics.mask, np.uint8).copy()


def read_publics(array: np.ndarray) -> Publics:
    """Read what ``write_publics`` wrote."""
    text = array.tobytes()
    return Publics(text[:KEY_BYTES], text[KEY_BYTES:])


def count_of(shapes: Shapes) -> int:
    """How many numbers arrays of these shapes hold."""
    return sum(int(np.prod(shape, dtype=np.int64)) for shape, _ in shapes.values())


def flatten(arrays: Mapping[str, Any], clients: int) -> Words:
    """Write named arrays as one row of fixed-point numbers, in the order of their names.

    Raises:
        OutOfRange: A number does not fit.
    """
    parts = [np.asarray(arrays[name], np.float64).ravel() for name in sorted(arrays)]
    return encode(np.concatenate(parts) if parts else np.zeros(0), clients)


def unflatten(words: Words, shapes: Shapes) -> Arrays:
    """The named arrays of a sum, in float64."""
    numbers, found, at = decode(words), {}, 0
    for name in sorted(shapes):
        shape = shapes[name][0]
        size = int(np.prod(shape, dtype=np.int64))
        found[name], at = np.asarray(numbers[at : at + size].reshape(shape)), at + size
    return found


def to_json(member: Member) -> str:
    """A client's state as text. It holds private keys."""
    plain: dict[str, Any] = member._asdict()
    for name in ("seal_key", "mask_key", "self_seed"):
        plain[name] = plain[name].hex()
    plain["publics"] = {client: [each.seal.hex(), each.mask.hex()] for client, each in member.publics.items()}
    for name in ("sealed", "received"):
        plain[name] = {client: text.hex() for client, text in plain[name].items()}
    return json.dumps(plain)


def from_json(text: str) -> Member:
    """Read what ``to_json`` wrote.

    Raises:
        ValueError: The text is damaged.
    """
    try:
        plain = json.loads(text)
        for name in ("seal_key", "mask_key", "self_seed"):
            plain[name] = bytes.fromhex(plain[name])
        publics = {int(client): Publics(*map(bytes.fromhex, each)) for client, each in plain["publics"].items()}
        texts = {
            name: {int(client): bytes.fromhex(each) for client, each in plain[name].items()}
            for name in ("sealed", "received")
        }
        inside, survivors = tuple(plain["inside"]), tuple(plain["survivors"])
        return Member(**{**plain, **texts, "publics": publics, "inside": inside, "survivors": survivors})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the state of a secure sum: {error!r}") from None
