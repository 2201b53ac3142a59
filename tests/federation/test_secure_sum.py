"""Secure sums: equal to plain sums under every drop-out, nothing below the threshold, and nothing of one client."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.errors import FedsteinError
from fedstein.federation.secure_sum import shamir
from fedstein.federation.secure_sum.collector import TooFew, unmasked_sum
from fedstein.federation.secure_sum.fixed_point import FRACTION, OutOfRange, add, decode, encode, largest, subtract
from fedstein.federation.secure_sum.masks import Forged, agree, mask, new_key, public_of, seal, unseal
from fedstein.federation.secure_sum.member import (
    Member,
    Misuse,
    begin,
    least_threshold,
    mask_input,
    publics_of,
    share,
    unmask,
)

DIGIT = 2.0**-FRACTION
PHASES = ("keys", "shares", "masked", "unmasked")


class Play:
    """One session with summands, whose clients leave before a phase."""

    def __init__(self, summands: dict[int, np.ndarray], leaves: dict[int, str] | None = None):
        self.summands, self.leaves = summands, leaves or {}
        self.members: dict[int, Member] = {}
        self.masked: dict[int, np.ndarray] = {}

    def there(self, clients: Iterable[int], phase: str) -> list[int]:
        """Those of the clients that have not left before this phase or an earlier one."""
        gone = PHASES[: PHASES.index(phase) + 1]
        return [client for client in clients if self.leaves.get(client) not in gone]

    def result(self) -> np.ndarray:
        for client in self.there(self.summands, "keys"):
            self.members[client] = begin("session", client)
        self.publics = {client: publics_of(each) for client, each in self.members.items()}
        self.threshold = least_threshold(len(self.publics))
        sent = {}
        for client in self.there(self.members, "shares"):
            self.members[client], sent[client] = share(self.members[client], self.publics, self.threshold)
        self.inside = tuple(sorted(sent))
        for client in self.there(sent, "masked"):
            got = {other: sent[other][client] for other in sent if other != client}
            words = encode(self.summands[client], len(self.publics))
            self.members[client], self.masked[client] = mask_input(self.members[client], got, words)
        seeds, keys = {}, {}
        for client in self.there(self.masked, "unmasked"):
            self.members[client], seeds[client], keys[client] = unmask(self.members[client], tuple(self.masked))
        args = (self.publics, self.masked, self.inside, seeds, keys, self.threshold)
        return decode(unmasked_sum("session", *args))


def summands_of(clients: int, count: int = 3) -> dict[int, np.ndarray]:
    draw = np.random.default_rng(clients)
    scales = np.array([1e-6, 1.0, 1e9])[:count]
    return {client: draw.normal(size=count) * scales for client in range(clients)}


def exact(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.array([math.fsum(column) for column in zip(*arrays, strict=True)])


def patterns(clients: int) -> Iterable[dict[int, str]]:
    """Every way in which clients stay or leave before a phase; of those that are alike up to names, one."""
    for each in itertools.combinations_with_replacement(("", *PHASES), clients):
        yield {client: phase for client, phase in enumerate(each) if phase}


@pytest.mark.parametrize("clients", [3, 4, *(pytest.param(count, marks=pytest.mark.slow) for count in (5, 6))])
def test_the_sum_is_the_plain_one_under_every_drop_out_or_there_is_none(clients: int) -> None:
    summands, found, refused = summands_of(clients), 0, 0
    for leaves in patterns(clients):
        play = Play(summands, leaves)
        try:
            total = play.result()
        except (Misuse, TooFew):
            begun = len(play.there(summands, "keys"))
            left = len(play.there(summands, "unmasked"))
            assert begun < 3 or left < least_threshold(begun), leaves
            refused += 1
            continue
        plain = exact(summands[client] for client in play.masked)
        last = clients * DIGIT / 2 + np.abs(plain) * 2.0**-52
        assert (np.abs(total - plain) <= last).all(), leaves
        found += 1
    assert found >= 1
    assert refused > found


def test_whole_numbers_are_exact() -> None:
    counts = {client: np.array([client + 1.0, 2.0**40, -7.0]) for client in range(5)}
    np.testing.assert_array_equal(Play(counts).result(), [15.0, 5 * 2.0**40, -35.0])


def test_one_masked_input_is_uniform_whatever_is_in_it() -> None:
    """What the server sees of one client: all bits are fair coins, and two clients' words are unrelated."""
    zeros = {client: np.zeros(4000) for client in range(3)}
    play = Play(zeros)
    play.result()
    for words in play.masked.values():
        bits = np.unpackbits(words.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / math.sqrt(bits.size)
        counts = np.bincount(words.view(np.uint8).ravel(), minlength=256)
        expected = words.nbytes / 256
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * math.sqrt(2 * 255)
    one, other = (np.unpackbits(play.masked[client].view(np.uint8)) for client in (0, 1))
    assert abs((one ^ other).mean() - 0.5) < 5 * 0.5 / math.sqrt(one.size)


def test_all_but_one_client_together_with_the_server_do_not_find_the_self_mask() -> None:
    """Pairwise masks of client 0 are known to the others; its own mask still hides its input."""
    play = Play({client: np.zeros(2000) for client in range(4)})
    play.result()
    words = play.masked[0]
    for other in (1, 2, 3):
        key = agree(play.members[other].mask_key, play.publics[0].mask, "mask", "session", 0, other)
        words = subtract(words, mask(key, len(words)))
    bits = np.unpackbits(words.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / math.sqrt(bits.size)


@pytest.fixture
def play() -> Play:
    made = Play(summands_of(4))
    made.result()
    return made


def fresh(clients: int = 4) -> tuple[dict[int, Member], dict[int, object], int]:
    members = {client: begin("session", client) for client in range(clients)}
    return members, {client: publics_of(each) for client, each in members.items()}, least_threshold(clients)


def test_a_server_that_names_two_sets_of_survivors_is_refused(play: Play) -> None:
    """With one set it has the shares of a client's seed, with the other those of its mask key: its input."""
    assert unmask(play.members[0], (0, 1, 2, 3))[1]
    with pytest.raises(Misuse, match="names other survivors than before"):
        unmask(play.members[0], (0, 1, 2))


def test_seed_and_mask_key_of_one_client_are_never_both_handed_out() -> None:
    play = Play(summands_of(6), {5: "masked"})
    play.result()
    _, seeds, keys = unmask(play.members[0], tuple(play.masked))
    assert set(keys) == {5}
    assert set(seeds) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("survivors", [(0, 1), (1, 2, 3), (0, 1, 2, 9)])
def test_survivors_that_are_too_few_without_oneself_or_unknown_are_refused(survivors: tuple[int, ...]) -> None:
    play = Play(summands_of(4), dict.fromkeys(range(4), "unmasked"))
    with pytest.raises(TooFew):
        play.result()
    with pytest.raises(Misuse):
        unmask(play.members[0], survivors)


def test_a_session_that_is_too_small_or_has_a_low_threshold_is_refused() -> None:
    members, publics, threshold = fresh(2)
    with pytest.raises(Misuse, match="at least 3 clients"):
        share(members[0], publics, 2)
    members, publics, threshold = fresh(4)
    assert threshold == 3
    for wrong in (2, 5):
        with pytest.raises(Misuse, match="threshold"):
            share(members[0], publics, wrong)


def test_keys_that_are_exchanged_or_doubled_are_refused() -> None:
    members, publics, threshold = fresh()
    with pytest.raises(Misuse, match="own keys"):
        share(members[0], {**publics, 0: publics_of(begin("session", 0))}, threshold)
    with pytest.raises(Misuse, match="the same key"):
        share(members[0], {**publics, 2: publics[1]}, threshold)
    shared, _ = share(members[0], publics, threshold)
    with pytest.raises(Misuse, match="other clients than before"):
        share(shared, {**publics, 4: publics_of(begin("session", 4))}, threshold)
    assert share(shared, publics, threshold) == (shared, shared.sealed)


def test_shares_that_were_changed_swapped_or_sealed_for_others_are_refused() -> None:
    members, publics, threshold = fresh()
    sent = {}
    for client in members:
        members[client], sent[client] = share(members[client], publics, threshold)
    good = {other: sent[other][0] for other in (1, 2, 3)}
    words = encode(np.ones(2), 4)
    flipped = bytes([good[1][0] ^ 1]) + good[1][1:]
    for wrong in ({**good, 1: flipped}, {**good, 1: good[2]}, {**good, 1: sent[1][2]}, {**good, 1: b""}):
        with pytest.raises(Misuse, match="client 1 cannot be opened"):
            mask_input(members[0], wrong, words)
    with pytest.raises(Misuse, match="client 7 is not in the session"):
        mask_input(members[0], {**good, 7: good[1]}, words)
    with pytest.raises(Misuse, match="fewer than the threshold"):
        mask_input(members[0], {1: good[1]}, words)
    with pytest.raises(Misuse, match="before shares"):
        mask_input(begin("session", 0), good, words)
    done, masked = mask_input(members[0], good, words)
    assert (mask_input(done, good, words)[1] == masked).all()
    with pytest.raises(Misuse, match="the input has changed"):
        mask_input(done, good, encode(np.zeros(2), 4))
    with pytest.raises(Misuse, match="other clients than before"):
        mask_input(done, {1: good[1], 2: good[2]}, words)


def test_a_share_of_another_session_does_not_give_a_wrong_sum() -> None:
    play = Play(summands_of(5), {4: "masked"})
    play.result()
    seeds = {client: unmask(play.members[client], tuple(play.masked))[1] for client in play.masked}
    keys = {client: unmask(play.members[client], tuple(play.masked))[2] for client in play.masked}
    other = dict(shamir.split(new_key(), play.threshold, range(5)))
    wrong = {client: {4: other[client]} for client in play.masked}
    with pytest.raises(FedsteinError, match="do not give its key"):
        unmasked_sum("session", play.publics, play.masked, play.inside, seeds, wrong, play.threshold)
    mixed = {**keys, 0: {4: other[0]}}
    with pytest.raises(FedsteinError, match="mask key of client 4"):
        unmasked_sum("session", play.publics, play.masked, play.inside, seeds, mixed, play.threshold)


@given(st.lists(st.floats(-1e18, 1e18), min_size=1, max_size=8), st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_fixed_point_numbers_come_back_and_add_up(values: list[float], clients: int) -> None:
    array = np.array(values)
    words = encode(array, clients)
    back = decode(words)
    assert (np.abs(back - array) <= DIGIT / 2 + np.abs(array) * 2.0**-53).all()
    wholes = [round(Fraction(value) * 2**FRACTION) % 2**128 for value in values]
    assert [(int(high) << 64) + int(low) for low, high in words] == wholes
    assert (decode(subtract(add(words, words), words)) == back).all()


def test_what_does_not_fit_is_refused_and_what_just_fits_does_not_wrap() -> None:
    bound = largest(3)
    just = np.nextafter(bound, 0)
    total = encode([just], 3)
    for _ in range(2):
        total = add(total, encode([just], 3))
    assert decode(total)[0] == pytest.approx(3 * just, rel=1e-15)
    for wrong in (bound, -bound, np.nan, np.inf):
        with pytest.raises(OutOfRange):
            encode([0.0, wrong], 3)


@pytest.mark.parametrize(("threshold", "holders"), [(1, 1), (2, 3), (3, 5), (5, 7)])
def test_any_threshold_shares_give_the_secret_and_fewer_do_not(threshold: int, holders: int) -> None:
    secret = bytes(range(32))
    shares = shamir.split(secret, threshold, range(holders))
    for chosen in itertools.combinations(range(holders), threshold):
        assert shamir.combine({holder: shares[holder] for holder in chosen}) == secret
    assert shamir.combine(shares) == secret
    if threshold > 1:
        with pytest.raises(ValueError, match="too few"):
            shamir.combine({holder: shares[holder] for holder in range(threshold - 1)})
    with pytest.raises(ValueError, match="expected 32 bytes"):
        shamir.split(secret[1:], threshold, range(holders))
    with pytest.raises(ValueError, match="different ids"):
        shamir.split(secret, 2, [1, 1])


def test_shamir_agrees_with_another_implementation_of_the_polynomial() -> None:
    """Lagrange's formula in exact fractions, on the integers of the shares."""
    shares = shamir.split(bytes(31) + b"\x05", 3, [0, 4, 9, 11])
    points = {holder + 1: int.from_bytes(text, "big") for holder, text in shares.items()}
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = points.items()
    p = shamir.PRIME

    def divided(a: tuple[int, int], b: tuple[int, int]) -> int:
        return (b[1] - a[1]) * pow(b[0] - a[0], -1, p) % p

    first = [divided(a, b) for a, b in itertools.pairwise(points.items())]
    second = [(first[1] - first[0]) * pow(x3 - x1, -1, p) % p, (first[2] - first[1]) * pow(x4 - x2, -1, p) % p]
    assert second[0] == second[1], "the third differences of a polynomial of degree 2 are 0"
    assert (y1 - first[0] * x1 + second[0] * x1 * x2) % p == 5
    assert {y2, y3, y4} != {5}


def test_masks_and_seals_are_those_of_one_key_one_session_and_one_pair() -> None:
    mine, theirs = new_key(), new_key()
    key = agree(mine, public_of(theirs), "mask", "s", 0, 1)
    assert key == agree(theirs, public_of(mine), "mask", "s", 1, 0)
    others = [("mask", "t", 0, 1), ("seal", "s", 0, 1), ("mask", "s", 0, 2)]
    assert key not in [agree(mine, public_of(theirs), *other) for other in others]
    assert (mask(key, 5)[:3] == mask(key, 3)).all()
    assert unseal(key, seal(key, b"text", "a"), "a") == b"text"
    with pytest.raises(Forged):
        unseal(key, seal(key, b"text", "a"), "b")
