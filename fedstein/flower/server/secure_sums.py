"""Secure sums over nodes: four requests to the clients, after which the server knows only the sum."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

from fedstein.federation.channel import size_of
from fedstein.federation.secure_sum import LEAST, least_threshold, shamir
from fedstein.federation.secure_sum.collector import TooFew, unmasked_sum
from fedstein.federation.secure_sum.wire import (
    SEALED_BYTES,
    count_of,
    ids,
    read_publics,
    read_rows,
    rows_of,
    unflatten,
    write_publics,
)
from fedstein.flower.messages import SECURE, Head, Shapes
from fedstein.flower.server.requests import Outcome, Requests
from fedstein.inference.sites.base import Arrays


def secure_total(
    requests: Requests,
    kind: str,
    number: int,
    clients: Sequence[int],
    arrays: Arrays,
    shapes: Shapes,
    least: Callable[[int], int] = least_threshold,
) -> tuple[Arrays, list[int]]:
    """Sum the replies that a plain request of this kind would get from the clients.

    Args:
        requests: The requests to clients.
        kind: The plain request: ``"scale"``, ``"sums"``, ``"evaluate"`` or ``"train"``.
        number: The round, 0 before round 1.
        clients: The clients to ask.
        arrays: The arrays that a plain request would send to each of them.
        shapes: The names, shapes and dtypes of a plain reply.
        least: The number of clients that have begun -> the threshold.

    Returns:
        The sum by name, and the clients that are in it.

    Raises:
        TooFew: Fewer clients than the threshold stayed; nothing was revealed.
        FedsteinError: No client answered, or the shares of a client do not fit.
    """
    began, session = time.monotonic(), uuid.uuid4().hex
    bytes_up = bytes_down = 0

    def ask(
        phase: str, to: Sequence[int], sent: Arrays, expected: Shapes, own: dict[int, Arrays], **more: int
    ) -> Outcome:
        nonlocal bytes_up, bytes_down
        extra: Head = {"phase": phase, "session": session, "of": kind, **more}
        limit = requests.settings.report_timeout
        found = requests.request(
            SECURE, number, to, sent, expected, limit, need_one=number == 0, own=own or None, extra=extra
        )
        bytes_down += size_of(sent) * len(to) + sum(size_of(each) for each in own.values())
        bytes_up += sum(size_of(each.arrays) for each in found.replies.values())
        return found

    first = ask("keys", clients, {}, {"keys": ((64,), "uint8")}, {})
    publics = {client: read_publics(reply.arrays["keys"]) for client, reply in first.replies.items()}
    _refuse_few(len(publics), LEAST, "answered")
    everybody, threshold = sorted(publics), least(len(publics))

    keys = rows_of({client: write_publics(each).tobytes() for client, each in publics.items()}, everybody, 64)
    form: Shapes = {"shares": ((len(everybody), SEALED_BYTES), "uint8")}
    second = ask("shares", everybody, {"ids": ids(everybody), "keys": keys}, form, {}, threshold=threshold)
    sealed = {client: read_rows(reply.arrays["shares"], everybody) for client, reply in second.replies.items()}
    _refuse_few(len(sealed), threshold, "shared their secrets")

    inside = tuple(sorted(sealed))
    own: dict[int, Arrays] = {}
    for client in inside:
        others = [other for other in inside if other != client]
        table = rows_of({other: sealed[other][client] for other in others}, others, SEALED_BYTES)
        own[client] = {"senders": ids(others), "shares": table}
    given = {f"of/{name}": array for name, array in arrays.items()}
    third = ask("masked", inside, given, {"masked": ((count_of(shapes), 2), "uint64")}, own)
    masked = {client: reply.arrays["masked"] for client, reply in third.replies.items()}
    _refuse_few(len(masked), threshold, "sent their masked sums")

    survivors = sorted(masked)
    lost = [client for client in inside if client not in masked]
    width = shamir.SHARE_BYTES
    form = {"seeds": ((len(survivors), width), "uint8"), "keys": ((len(lost), width), "uint8")}
    fourth = ask("unmasked", survivors, {"survivors": ids(survivors)}, form, {})
    _refuse_few(len(fourth.replies), threshold, "handed out their shares")
    seeds = {client: read_rows(reply.arrays["seeds"], survivors) for client, reply in fourth.replies.items()}
    shares = {client: read_rows(reply.arrays["keys"], lost) for client, reply in fourth.replies.items()}
    name = f"{requests.run} {kind} {number} {session}"
    total = unmasked_sum(name, publics, masked, inside, seeds, shares, threshold)
    requests.events.note(
        "secure sum",
        number=number,
        kind=kind,
        clients=survivors,
        threshold=threshold,
        bytes_down=bytes_down,
        bytes_up=bytes_up,
        seconds=round(time.monotonic() - began, 3),
    )
    return unflatten(total, shapes), survivors


def _refuse_few(clients: int, least: int, what: str) -> None:
    if clients < least:
        raise TooFew(f"a secure sum failed: {clients} clients {what}, {least} are needed; nothing was revealed")
