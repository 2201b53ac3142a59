"""The link (Flower's SuperLink) goes away at every point of an exchange: the server asks again, the result is the same.

The grid of these tests is in this process; ``test_flower_link_real.py`` does the same to real processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from flower_runs import BLR, CLIENTS, QUICK, Fleet, events, lines, settings
from flwr.app import Error, Message
from flwr.supercore.inflatable.inflatable_object import UnexpectedObjectContentError
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError, ObjectUnavailableError
from flwr.supercore.run import RunNotRunningException
from google.protobuf.message import DecodeError
from loopback import LoopGrid

from fedstein.errors import FedsteinError
from fedstein.flower import FedStein
from fedstein.flower.server import membership as membership
from fedstein.flower.server import requests as requests
from fedstein.flower.server import transport as transport
from fedstein.flower.server.transport import GridTransport, RetryingGrid, link_is_away

REQUEST = httpx.Request("POST", "http://127.0.0.1/v1/runtime")
METHODS = ("get_node_ids", "push_messages", "pull_messages")


def status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError(f"the link says {code}", request=REQUEST, response=httpx.Response(code))


def not_protobuf() -> ValueError:
    error = ValueError("Invalid protobuf response payload")
    error.__cause__ = DecodeError("Error parsing message")
    return error


# Whatever Flower 1.41 can raise out of a Grid while the link is away. Flower itself waits for most of HTTPX's errors.
AWAY: dict[str, Callable[[], Exception]] = {
    "object not pushed": lambda: ObjectPushError("object", 1, "session"),
    "object not pulled": lambda: ObjectPullError("object", "the object could not be found."),
    "object not there yet": lambda: ObjectUnavailableError("object"),
    "object not readable": lambda: UnexpectedObjectContentError("object", "Unexpected format for object head."),
    "refused": lambda: httpx.ConnectError("[Errno 111] Connection refused"),
    "cut in the TLS handshake": lambda: httpx.ConnectError("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred (_ssl.c)"),
    "cut while reading": lambda: httpx.ReadError("[Errno 104] Connection reset by peer"),
    "cut while writing": lambda: httpx.WriteError("[Errno 32] Broken pipe"),
    "cut while closing": lambda: httpx.CloseError("closed"),
    "closed without an answer": lambda: httpx.RemoteProtocolError("Server disconnected without sending a response."),
    "closed under the request": lambda: httpx.LocalProtocolError("Can't send data when our state is ERROR"),
    "proxy": lambda: httpx.ProxyError("502 Bad Gateway"),
    "connect timeout": lambda: httpx.ConnectTimeout("timed out"),
    "read timeout": lambda: httpx.ReadTimeout("timed out"),
    "write timeout": lambda: httpx.WriteTimeout("timed out"),
    "pool timeout": lambda: httpx.PoolTimeout("timed out"),
    "cut in a compressed answer": lambda: httpx.DecodingError("incomplete or truncated stream"),
    "not protobuf": not_protobuf,
    "reset": lambda: ConnectionResetError(104, "Connection reset by peer"),
    "timeout": lambda: TimeoutError("timed out"),
    **{f"status {code}": (lambda code=code: status(code)) for code in (408, 429, 500, 502, 503, 504)},
}
SURFACES: dict[str, Callable[[], BaseException]] = {
    "our mistake": lambda: KeyError("receipt"),
    "another of ours": lambda: TypeError("expected bytes"),
    "a value": lambda: ValueError("Invalid message"),
    "a wrong certificate": lambda: httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
    "a wrong address": lambda: httpx.UnsupportedProtocol("Request URL is missing an 'http://' protocol."),
    "a bad request": lambda: status(400),
    "a wrong path": lambda: status(404),
    "the run was stopped": RunNotRunningException,
}


class FickleLink(LoopGrid):
    """A grid whose link goes away at one call, for that call or for several; like the real link it knows messages by
    their content, delivers each once, forgets replies that it handed over, and says so when it is asked for them."""

    def __init__(self, nodes: dict[int, dict[str, Any]]):
        super().__init__(nodes)
        self.calls = dict.fromkeys(METHODS, 0)
        self.method, self.first, self.times, self.answered = "", 0, 0, False
        self.error: Callable[[], BaseException] = RuntimeError
        self.requests: dict[str, Message] = {}
        self.gone: set[str] = set()

    def fail(self, method: str, error: Callable[[], BaseException], first: int, times: int, answered: bool) -> None:
        """At call ``first`` of ``method`` and those after it; ``answered``: the link did it and could not say so."""
        self.method, self.error, self.first, self.times, self.answered = method, error, first, times, answered

    def get_node_ids(self) -> Iterable[int]:
        return self._fickle("get_node_ids", super().get_node_ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        given = list(messages)
        return self._fickle("push_messages", lambda: self._push(given))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = list(message_ids)
        return self._fickle("pull_messages", lambda: self._pull(wanted))

    def _push(self, messages: list[Message]) -> list[str]:
        fresh = [message for message in messages if message.object_id not in self.requests]
        self.requests.update({message.object_id: message for message in fresh})
        super().push_messages(fresh)
        return [message.object_id for message in messages]

    def _pull(self, wanted: list[str]) -> list[Message]:
        lost = [Message(Error(3, "no such message"), reply_to=self.requests[one]) for one in wanted if one in self.gone]
        found = list(super().pull_messages(wanted))
        self.gone |= {message.metadata.reply_to_message_id for message in found}
        return [*found, *lost]

    def _fickle(self, method: str, call: Callable[[], Any]) -> Any:
        self.calls[method] += 1
        fails = method == self.method and 0 <= self.calls[method] - self.first < self.times
        found = call() if self.answered or not fails else None
        if fails:
            raise self.error()
        return found


RAW = settings(
    BLR,
    engine={**QUICK, "report_timeout": 5.0, "train_timeout": 5.0, "patience": 20.0, "start_timeout": 20.0},
    selection={"kind": "ksd"},
    sites={"kind": "particles", "density": "log"},
    rounds=2,
)


def fickle(folder: Path) -> Fleet:
    made = Fleet(FickleLink({}), folder / "nodes")
    made.grid.nodes.update({100 + client: made.node(client) for client in range(CLIENTS)})
    return made


def grid_of(fleet: Fleet) -> FickleLink:
    assert isinstance(fleet.grid, FickleLink)
    return fleet.grid


def outcome(out: Path) -> tuple[Any, bytes]:
    """What a run comes to: its lines without seconds, and its posterior to the bit."""
    return lines(out), (out / "posterior.safetensors").read_bytes()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "LOOK_EVERY", 0.0)  # a look at the nodes is part of every turn of the loop
    monkeypatch.setattr(membership, "AFTER_LINK", 0.0)
    monkeypatch.setattr(transport, "PUSH_AGAIN", (0.0, 0.0, 0.0))
    monkeypatch.setattr(transport, "LINK_PAUSES", (0.0,))
    monkeypatch.setattr(requests, "BACK_OFF", (0.0,))
    monkeypatch.setattr(requests, "LOOKS", (0.0, 0.0))
    monkeypatch.setattr(GridTransport, "wait", lambda self, seconds: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[Any, bytes], dict[str, int]]]:
    """An undisturbed run: what it comes to, and how often it calls each method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership, "LOOK_EVERY", 0.0)
        folder = tmp_path_factory.mktemp("whole")
        fleet = fickle(folder)
        found = outcome(fleet.run(RAW, folder / "run"))
        assert {entry["event"] for entry in events(folder / "run")} == {"joined"}
        yield found, dict(grid_of(fleet).calls)


Whole = tuple[tuple[Any, bytes], dict[str, int]]


# Every day these, which stand for Flower's own errors, the link's and the network's; the others in the full run.
EVERY_DAY = ("object not pushed", "status 500", "cut in the TLS handshake")
NAMES = [name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow) for name in AWAY]


def disturbed(name: str, method: str, number: int, whole: Whole, folder: Path) -> None:
    """A run in which the link did what call ``number`` asked for, and could not say so."""
    expected, calls = whole
    fleet = fickle(folder)
    grid_of(fleet).fail(method, AWAY[name], number, 1, True)
    out = fleet.run(RAW, folder / "run")
    assert outcome(out) == expected, f"call {number}"
    told = [entry["event"] for entry in events(out) if entry["event"].startswith("link")]
    assert told[:1] == ["link away"]
    assert told.count("link back") == told.count("link away") or number == calls[method]


@pytest.mark.parametrize("method", METHODS)
def test_a_link_that_goes_at_any_call_changes_nothing(method: str, whole: Whole, tmp_path: Path) -> None:
    calls = whole[1][method]
    assert calls >= 5, "greetings, and twice reports and a training"
    for number in range(1, calls + 1):
        disturbed("object not pushed", method, number, whole, tmp_path / str(number))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_whatever_flower_raises_ends_in_the_same_run(name: str, method: str, whole: Whole, tmp_path: Path) -> None:
    """Each error at one call, the next error at the next call: what follows does not depend on the kind of error."""
    disturbed(name, method, 1 + list(AWAY).index(name) % whole[1][method], whole, tmp_path)


@pytest.mark.parametrize("answered", [True, False], ids=["done and not said", "not done"])
@pytest.mark.parametrize("method", METHODS)
def test_a_link_that_stays_away_for_several_calls(method: str, answered: bool, whole: Whole, tmp_path: Path) -> None:
    """Past the last attempt with the same messages: new ones are sent, and nobody looks for replies to the old."""
    expected, calls = whole
    for number in range(1, calls[method] + 1):
        fleet = fickle(tmp_path / str(number))
        grid_of(fleet).fail(method, AWAY["object not pushed"], number, 2 * len(transport.PUSH_AGAIN) + 3, answered)
        assert outcome(fleet.run(RAW, tmp_path / str(number) / "run")) == expected, f"call {number}"
        if method == "push_messages":
            delivered = len(grid_of(fleet).sent) - 3 - 2 * (3 + 1)
            assert (delivered > 0) is answered, "the old messages reached their nodes too where the link had them"


@pytest.mark.parametrize("method", METHODS)
def test_a_link_that_goes_once_and_has_done_nothing(method: str, whole: Whole, tmp_path: Path) -> None:
    expected, calls = whole
    for number in range(1, calls[method] + 1):
        fleet = fickle(tmp_path / str(number))
        grid_of(fleet).fail(method, AWAY["refused"], number, 1, False)
        assert outcome(fleet.run(RAW, tmp_path / str(number) / "run")) == expected, f"call {number}"


@pytest.mark.parametrize("method", METHODS)
def test_without_waiting_a_link_that_goes_once_costs_no_client(method: str, whole: Whole, tmp_path: Path) -> None:
    """``on_missing = "proceed"`` gives up clients that do not answer; one whose reply the link lost is asked again."""
    expected, calls = whole
    raw = {**RAW, "engine": {**RAW["engine"], "on_missing": "proceed"}}
    for number in range(1, calls[method] + 1):
        fleet = fickle(tmp_path / str(number))
        grid_of(fleet).fail(method, AWAY["status 500"], number, 1, True)
        assert outcome(fleet.run(raw, tmp_path / str(number) / "run")) == expected, f"call {number}"


def test_a_message_whose_push_failed_is_delivered_once(tmp_path: Path) -> None:
    """The link has the message and could not say so: it is handed over once more and not made anew."""
    fleet = fickle(tmp_path)
    grid_of(fleet).fail("push_messages", AWAY["object not pushed"], 3, 1, True)  # the training of round 1
    out = fleet.run(RAW, tmp_path / "run")
    assert len(grid_of(fleet).sent) == 3 + 2 * (3 + 1)
    assert {entry["event"] for entry in events(out)} == {"joined", "link away", "link back"}


def test_a_link_that_stays_away_ends_the_run_after_its_patience(tmp_path: Path) -> None:
    """With a sentence; the same folder goes on to the same end when the link is back."""
    raw = {**RAW, "engine": {**RAW["engine"], "patience": 0.3}}
    fleet = fickle(tmp_path)
    grid_of(fleet).fail("push_messages", AWAY["status 500"], 4, 10**9, False)  # the reports of round 2
    with pytest.raises(FedsteinError, match=r"round 2: nobody answered .*the link did not take the message"):
        fleet.run(raw, tmp_path / "run")
    grid_of(fleet).fail("", RuntimeError, 0, 0, False)
    undisturbed = fickle(tmp_path / "other").run(RAW, tmp_path / "other" / "run")
    assert outcome(fleet.run(raw, tmp_path / "run")) == outcome(undisturbed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SURFACES)
def test_mistakes_still_surface(name: str, method: str, tmp_path: Path) -> None:
    error = SURFACES[name]()
    fleet = fickle(tmp_path)
    grid_of(fleet).fail(method, lambda: error, 1, 1, False)
    grid = RetryingGrid(fleet.grid)
    with pytest.raises(type(error)) as caught:
        getattr(grid, method)(*([] if method == "get_node_ids" else [[]]))
    assert caught.value is error
    assert not isinstance(error, Exception) or not link_is_away(error)


def test_while_the_link_is_away_the_nodes_are_those_of_the_last_look() -> None:
    grid = FickleLink({7: {}, 8: {}})
    patient = RetryingGrid(grid)
    grid.fail("get_node_ids", AWAY["refused"], 2, 2, False)
    assert list(patient.get_node_ids()) == [7, 8]
    del grid.nodes[8]
    assert list(patient.get_node_ids()) == list(patient.get_node_ids()) == [7, 8]
    assert list(patient.get_node_ids()) == [7]


def test_the_pauses_grow_while_the_link_is_away_and_end_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LINK_PAUSES", (1.0, 2.0, 4.0))
    grid = FickleLink({})
    patient = RetryingGrid(grid)
    grid.fail("pull_messages", AWAY["refused"], 2, 4, False)
    pauses = []
    for _ in range(6):
        patient.pull_messages([])
        pauses.append(patient.pause)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 4.0, 0.0]


def test_a_request_that_the_link_finds_too_large_is_said_to_be(tmp_path: Path) -> None:
    """Flower's grid returns an empty list then, whatever the number of messages."""
    fleet = fickle(tmp_path)
    fleet.grid.push_messages = lambda messages: []  # type: ignore[method-assign]
    with pytest.raises(FedsteinError, match="a request to 3 nodes as too large"):
        fleet.run(RAW, tmp_path / "run")


@pytest.mark.parametrize("method", ["push_messages", "pull_messages"])
def test_a_strategy_in_flowers_own_loop_asks_again(method: str, whole: Whole, tmp_path: Path) -> None:
    """The training goes through Flower's loop there, which raises; it is asked again through the grid."""
    expected, calls = whole
    for number in range(1, calls[method] + 1):
        fleet = fickle(tmp_path / str(number))
        grid_of(fleet).fail(method, AWAY["object not pushed"], number, 1, True)
        strategy = FedStein(RAW)
        strategy.start(grid=fleet.grid, initial_arrays=strategy.initial_arrays(), num_rounds=2)
        found = [{key: value for key, value in record.items() if key != "seconds"} for record in strategy.records]
        assert found == expected[0], f"call {number}"
