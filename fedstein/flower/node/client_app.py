"""Flower's ClientApp: it calls ``handle``. A SuperNode starts a new process for every message."""

from __future__ import annotations

import os
import tomllib
from logging import WARNING
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.supercore import log

from fedstein.flower.messages import REFUSED, Envelope
from fedstein.flower.records import arrays_content, from_record, to_record

app = ClientApp()


def answer(message: Message, context: Context) -> Message:
    """Answer a request, with the threads and the precision that the server's config sets.

    Args:
        message: The request.
        context: Flower's context, with the node config of the SuperNode.

    Returns:
        The reply.

    Raises:
        FedsteinError: The node config is wrong, or the message cannot be read. Flower reports it to the server.
    """
    request = from_record(message.content)
    start_computing(request.head.get("config", ""), str(context.node_config.get("state-dir", "")))
    from fedstein.flower.node.handlers import handle
    from fedstein.flower.node.rows import read_node

    reply = handle(request, read_node(context.node_config))
    log_refusal(reply)
    return Message(to_record(reply.head, arrays_content(reply.arrays)), reply_to=message)


def log_refusal(reply: Envelope) -> None:
    """Write a refusal to the node's log. The server's ``events.jsonl`` gets the same reason."""
    if reply.head.get("status") == REFUSED:
        what = f"{reply.head.get('kind')}, round {reply.head.get('round')}, run {reply.head.get('run')}"
        log(WARNING, "fedstein: %s: refused: %s", what, reply.head.get("reason"))


def start_computing(config: str, state_dir: str) -> None:
    """Set JAX's threads, precision and compilation cache, before JAX makes its first array.

    Args:
        config: The server's config as TOML. If it cannot be read, nothing is set, and the reply will say so.
        state_dir: The node's state folder, for the compilation cache; empty for none.
    """
    try:
        engine = tomllib.loads(config).get("engine", {})
        threads, precision = int(engine.get("threads", 1)), str(engine.get("precision", "float32"))
    except (tomllib.TOMLDecodeError, TypeError, ValueError):  # the handler reports what is wrong with it
        return
    os.environ["NPROC"] = str(threads)
    if state_dir:  # so that a node compiles its programs once, and not for each message
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(state_dir).expanduser().absolute() / "jax-cache"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    import jax

    jax.config.update("jax_enable_x64", precision == "float64")


app.query()(answer)
app.train()(answer)
app.evaluate()(answer)
