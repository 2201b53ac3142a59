"""Callbacks: objects that observe a run, for ``fedstein.fit(callbacks=[...])`` and ``fedstein run --log``.

A callback may be any object with the three methods of ``Callback``. Subclass it to write only the methods that you
need. Callbacks only observe: their results are ignored, and a run with callbacks gives the same bits as one without. An
exception in a callback ends the run, but ``on_end`` of every other callback is still called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fedstein.errors import InputError

METHODS = ("on_start", "on_round", "on_end")


class Callback:
    """The protocol, with methods that do nothing. An object with these methods need not be a subclass."""

    def on_start(self, config: Mapping[str, Any]) -> None:
        """Handle the start of a run. It is called once, before the first round.

        Args:
            config: The resolved config as nested mappings, the content of ``config.toml``.
        """

    def on_round(self, record: Mapping[str, Any]) -> None:
        """Handle the record of a round. It is called after every round.

        Args:
            record: The record of the round, with the keys of a line of ``rounds.jsonl``.
        """

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        """Handle the end of a run. It is called once, after the last round.

        Args:
            summary: The content of ``summary.json``; None for a run that was stopped or failed.
        """


class Notifier:
    """Passes the events of a run on to callbacks. ``notified`` makes one."""

    def __init__(self, callbacks: Sequence[Any]):
        self.callbacks = tuple(callbacks)
        self.summary: Mapping[str, Any] | None = None

    def on_round(self, record: Mapping[str, Any]) -> None:
        """Tell every callback about a round."""
        for callback in self.callbacks:
            callback.on_round(record)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Keep the summary, which the callbacks get when the block of ``notified`` ends."""
        self.summary = summary


@contextmanager
def notified(callbacks: Sequence[Any], config: Mapping[str, Any]) -> Iterator[Notifier]:
    """Tell callbacks about the start of a run and, however the block ends, about its end.

    Args:
        callbacks: Objects with ``on_start``, ``on_round`` and ``on_end``.
        config: The resolved config, as nested mappings.

    Yields:
        A notifier: call its ``on_round`` with each record and its ``finish`` with the summary.

    Raises:
        InputError: An object lacks one of the methods.
    """
    check_callbacks(callbacks)
    notifier = Notifier(callbacks)
    started: list[Any] = []
    try:
        for callback in notifier.callbacks:
            started.append(callback)
            callback.on_start(config)
        yield notifier
    finally:
        _end_all(started, notifier.summary)


def check_on_round(on_round: Any) -> None:
    """Check the function that a user has passed for the records of the rounds.

    Args:
        on_round: The function, or None.

    Raises:
        InputError: It cannot be called.
    """
    if on_round is not None and not callable(on_round):
        raise InputError(f"on_round: expected a function that takes the record of a round, got {on_round!r}")


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Check that every object has the methods of a callback.

    Args:
        callbacks: The objects.

    Raises:
        InputError: An object lacks a method, which the message names, or ``callbacks`` is not a list of objects.
    """
    if not isinstance(callbacks, (list, tuple)):
        raise InputError(f"callbacks: expected a list of callbacks, got {type(callbacks).__name__}")
    for callback in callbacks:
        if isinstance(callback, type):
            raise InputError(f"callbacks: expected an object, got the class {callback.__name__}; call it first")
        missing = [name for name in METHODS if not callable(getattr(callback, name, None))]
        if missing:
            raise InputError(
                f"expected a callback with the methods {', '.join(METHODS)}, got {type(callback).__name__} without "
                f"{', '.join(missing)}; subclass fedstein.Callback, or pass a function as on_round="
            )


def _end_all(callbacks: Sequence[Any], summary: Mapping[str, Any] | None) -> None:
    """Tell every callback about the end, even if one of them fails. Its exception is raised afterwards."""
    if callbacks:
        try:
            callbacks[0].on_end(summary)
        finally:
            _end_all(callbacks[1:], summary)
