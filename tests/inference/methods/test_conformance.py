"""Whatever a registry names must build, play, stay finite and repeat itself bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from fedstein.inference.methods import METHODS
from fedstein.inference.sites import SITES
from fedstein.models import MODELS
from fedstein.selection import SCHEMES

REGISTRIES: dict[str, Any] = {"model": MODELS, "site": SITES, "scheme": SCHEMES, "algorithm": METHODS}
USUAL = {"model": "bnn_classifier", "site": "particles", "scheme": "ksd", "algorithm": "dsvgd"}


def sites_of(algorithm: str) -> list[str]:
    """The kinds of sites that a method works with."""
    return [name for name, kind in SITES.items() if kind.keeps_state == METHODS[algorithm].uses_sites]


def beside_the_usual(**chosen: str) -> dict[str, str]:
    """The usual entries of the other registries, or ones that go with those chosen."""
    entry = {**USUAL, **chosen}
    if "algorithm" not in chosen:
        fits = [name for name in METHODS if entry["site"] in sites_of(name)]
        entry["algorithm"] = entry["algorithm"] if entry["algorithm"] in fits else fits[0]
    method, scheme = METHODS[entry["algorithm"]], SCHEMES[entry["scheme"]]
    if "site" not in chosen:
        able = [site for site in sites_of(entry["algorithm"]) if SITES[site].has_score or not scheme.needs_site_score]
        entry["site"] = entry["site"] if entry["site"] in able else able[0]
    if (scheme.asks and not method.answers_reports) or (scheme.needs_tilted and not method.answers_tilted):
        entry["scheme"] = "round_robin"
    return entry


# Every entry of every registry, every method with every kind of site it works with, every model with sites that add up.
PAIRS = {(name, site) for name in METHODS for site in sites_of(name)}
CHOSEN = [
    *({kind: name} for kind, registry in REGISTRIES.items() for name in registry),
    *({"algorithm": name, "site": site} for name, site in sorted(PAIRS)),
    *({"model": name, "site": "curvature"} for name in MODELS),
]
ENTRIES = {", ".join(entry.values()): entry for entry in (beside_the_usual(**chosen) for chosen in CHOSEN)}


def test_no_entry_is_left_out() -> None:
    for kind, registry in REGISTRIES.items():
        assert {entry[kind] for entry in ENTRIES.values()} == set(registry)
    assert {(entry["algorithm"], entry["site"]) for entry in ENTRIES.values()} == PAIRS


@pytest.mark.parametrize("entry", ENTRIES)
def test_two_rounds_of_a_miniature(entry: str, miniature: Callable[..., Any]) -> None:
    federation = miniature(**ENTRIES[entry], seed=1)
    posterior = federation.context.method.posterior
    start = np.asarray(posterior(federation.context.program.first_server))
    state, records = federation.play()
    particles = np.asarray(posterior(state.server))
    assert [record["round"] for record in records] == [1, 2]
    count = 1 if ENTRIES[entry]["algorithm"] == "fedavg" else 5
    assert particles.shape == start.shape == (count, federation.context.program.model.dim)
    assert len(federation.engine.clients) == (1 if METHODS[ENTRIES[entry]["algorithm"]].pooled else 4)
    assert np.all(np.isfinite(particles))
    assert np.any(particles != start)
    for record in records:
        assert 1 <= len(set(record["selected"])) == len(record["selected"])
        assert not record["failed"]
    json.dumps([state.memory, *map(dict, records)], allow_nan=False)  # records and memory are plain JSON

    # A private state appears for those that trained, and for nobody else; its arrays are named and finite.
    assert set(state.sites) == {k for record in records for k in record["selected"]}
    first = federation.context.program.first_state
    assert first or ENTRIES[entry]["site"] == "none"
    for private in state.sites.values():
        assert {k: (a.shape, a.dtype) for k, a in private.items()} == {k: (a.shape, a.dtype) for k, a in first.items()}
        assert all(np.all(np.isfinite(array)) for array in private.values())

    again, repeated = federation.again(seed=1).play()
    for name, array in state.server.items():
        np.testing.assert_array_equal(array, again.server[name])
    assert [{**r, "seconds": 0} for r in repeated] == [{**r, "seconds": 0} for r in records]
    other, _ = federation.again(seed=2).play()
    assert np.all(np.any(np.asarray(posterior(other.server)) != particles, axis=1))


@pytest.mark.parametrize("name", SCHEMES)
def test_several_clients_a_round_train_one_after_another(name: str, miniature: Callable[..., Any]) -> None:
    site = "curvature" if SCHEMES[name].needs_site_score else "particles"
    federation = miniature(scheme=name, site=site, settings={"selection": {"per_round": 3}})
    _, records = federation.play()
    assert all(len(set(record["selected"])) == 3 for record in records)
    sized = records[0]["reports"]
    if not SCHEMES[name].asks:
        assert sized is None
        assert records[0]["bytes_up"] == 3 * 5 * federation.context.program.model.dim * 4
    else:
        assert len(sized) == (3 if name == "power_of_choice" else 4)  # which has a pool by default
        assert all(np.isfinite(value) for value in sized)


@pytest.mark.slow
def test_clients_of_very_different_sizes(miniature: Callable[..., Any]) -> None:
    """One row, fewer than a batch, exactly a batch, more: padded, whole or in batches."""
    federation = miniature(model="blr", scheme="round_robin", sizes=(1, 5, 8, 19), rounds=4)
    state, records = federation.play()
    assert [record["selected"] for record in records] == [[0], [1], [2], [3]]
    assert np.all(np.isfinite(state.server["particles"]))
    # steps x rows x particles: whole shards up to a batch of 8
    assert [record["row_gradients"]["train"] for record in records] == [2 * n * 5 for n in (1, 5, 8, 8)]


@pytest.mark.parametrize("name", [name for name, kind in SCHEMES.items() if kind.asks])
def test_a_pool_and_a_minibatch_of_reports(name: str, miniature: Callable[..., Any]) -> None:
    site = "curvature" if SCHEMES[name].needs_site_score else "particles"
    federation = miniature(scheme=name, site=site, settings={"selection": {"pool": 2, "report_rows": 5}})
    _, records = federation.play()
    for record in records:
        assert record["candidates"] == len(record["candidate_ids"]) == len(record["reports"]) == 2
        assert set(record["selected"]) <= set(record["candidate_ids"])
        assert record["row_gradients"]["report"] == 2 * 5 * 5  # clients x rows x particles


@pytest.mark.parametrize("kind", REGISTRIES)
def test_entries_describe_themselves(kind: str) -> None:
    for name, info in REGISTRIES[kind].items():
        assert name == name.lower()
        assert len(info.about) > 10
        assert info.name == name
        for key, field in info.settings.model_fields.items():
            assert key == "kind" or field.description, (name, key)  # ``fedstein config`` and docs/config.md show it


@pytest.mark.parametrize("name", MODELS)
def test_a_model_builds_with_every_start_it_names(name: str) -> None:
    kind = MODELS[name]
    starts = kind.settings.model_fields["start"].annotation.__args__
    for start in starts:
        model = kind.build(3, 2, kind.settings(start=start))
        assert model.task == kind.task
        assert jax.eval_shape(lambda m=model: m.init(jax.random.key(0), 6)).shape == (6, model.dim)
