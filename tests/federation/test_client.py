"""What a client computes is one compiled call, and nothing in it comes back to Python: so it can run on any device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest

from fedstein.federation import client as client_module

KINDS = [
    ("blr", "particles", "ksd"),
    ("blr", "curvature", "innovation"),
    ("bnn_classifier", "particles", "hip"),
    ("bnn_classifier", "curvature", "ksd"),
    ("bnn_regressor", "curvature", "hip"),
]


def primitives(jaxpr: Any) -> Iterator[str]:
    """The names of everything a traced program does, inner programs included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from primitives(inner)


def test_the_check_would_find_a_callback():
    def careless(x: jax.Array) -> jax.Array:
        jax.debug.callback(print, x)
        return x

    traced = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 2, lambda _, y: careless(y), x))(1.0)
    assert any("callback" in name for name in primitives(traced.jaxpr))


@pytest.mark.parametrize(("model", "site", "scheme"), KINDS)
def test_training_and_reports_are_one_call_each_without_callbacks(
    model: str, site: str, scheme: str, miniature: Any, monkeypatch: pytest.MonkeyPatch
):
    made = miniature(model=model, site=site, scheme=scheme, rounds=1)
    program, engine, server = made.context.program, made.engine, made.context.program.first_server
    broadcast = program.method.broadcast(server, program.scheme.uses)
    received = {**broadcast, **program.method.assign(server, None)}
    calls: list[tuple[str, Any, tuple[Any, ...]]] = []
    for name in ("_train", "_report"):
        compiled = getattr(client_module, name)

        def counted(*arguments: Any, name: str = name, compiled: Any = compiled) -> Any:
            calls.append((name, compiled, arguments))
            return compiled(*arguments)

        monkeypatch.setattr(client_module, name, counted)
    program.report(1, 0, program.prepare(1, broadcast), None, engine.shards[0])
    program.train(1, 0, received, {}, None, engine.shards[0])
    assert [name for name, _, _ in calls] == ["_report", "_train"]
    for name, compiled, arguments in calls:
        traced = compiled.trace(*arguments).jaxpr
        used = set(primitives(traced.jaxpr))
        assert not {each for each in used if "callback" in each or "infeed" in each or "outfeed" in each}, name
        assert "dot_general" in used
