"""Keys without a use: refused where the user contradicts himself, noted where a later layer has overridden a base."""

from __future__ import annotations

import pytest

from fedstein.errors import InputError
from fedstein.models import ModelTraits
from fedstein.runs.config import merge, read_layers, resolve
from fedstein.runs.defaults import Facts
from fedstein.runs.unused import DEPENDENCIES

BINARY = Facts("classification", 2)


def layers(*settings: list[str]) -> list:
    return [(f"layer {number}", merge({}, some)) for number, some in enumerate(settings)]


CONTRADICTIONS = [
    (["selection.kind=round_robin", "selection.pool=5"], ["selection.pool", "'round_robin'", "'ksd' or 'hip'"]),
    (["selection.order=seeded"], ["selection.order", "'ksd' by default", "selection.kind = 'round_robin'"]),
    (["partition.kind=iid", "partition.ratio=0.8"], ["partition.ratio", "'iid'", "'label_ratio'"]),
    (["algorithm.distill_steps=4"], ["algorithm.distill_steps", "sites.kind is 'curvature'", "'particles'"]),
    (["algorithm.kind=parallel_dsvgd", "algorithm.prior=divided"], ["algorithm.prior", "sites.kind = 'particles'"]),
    (["algorithm.kind=fedavg", "algorithm.epsilon=0.1"], ["algorithm.epsilon", "'fedavg'", "'dsvgd'"]),
    (["sites.rank=3"], ["sites.rank", "sites.structure is 'full'", "'eigen'"]),
    (["evaluate.fraction=0.3"], ["evaluate.fraction", "evaluate.where is 'server'", "'clients'"]),
    (["data.name=covertype", "data.path=x.csv"], ["data.path", "data.name is 'covertype'", "'file'"]),
    (["engine.patience=3.0"], ["engine.patience", "engine.kind is 'local'", "'flower'"]),
    (["model.hidden=[3]"], ["model.hidden", "model.kind is 'blr' by default", "'bnn_classifier'"]),
    (
        ["data.name=file", "data.path=x", "data.test_path=y", "data.test_fraction=0.3"],
        ["data.test_fraction", "data.test_path is 'y'", "no data.test_path"],
    ),
    *(
        ([f"privacy.{key}={value}"], [f"privacy.{key}", "'none' by default", "privacy.kind = 'record'"])
        for key, value in {
            "epsilon": 2.0,
            "delta": 1e-6,
            "clip": 3.0,
            "visits": 3,
            "split": 0.5,
            "client_rows": 9,
            "largest_count": 9,
            "largest_target": 9.0,
            "colluding": 2,
            "dropouts": 2,
            "public": '["rows"]',
            "ledger": "books",
        }.items()
    ),
    (["robust.pull=2.0"], ["robust.pull", "'none' by default", "robust.kind = 'bounded'"]),
    (["robust.curvature=2.0"], ["robust.curvature", "'none' by default", "robust.kind = 'bounded'"]),
]


@pytest.mark.parametrize(("settings", "words"), CONTRADICTIONS)
def test_a_key_without_a_use_is_refused(settings, words):
    with pytest.raises(InputError) as caught:
        resolve(merge({}, settings), BINARY)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(("settings", "words"), CONTRADICTIONS)
def test_a_later_layer_that_says_something_else_does_not_excuse_it(settings, words):
    with pytest.raises(InputError, match=words[0]):
        resolve(layers(settings, ["seed=3"]), BINARY)


def test_every_tie_is_among_the_contradictions():
    assert {tie.key for tie in DEPENDENCIES} <= {words[0] for _, words in CONTRADICTIONS}


@pytest.mark.parametrize(
    ("base", "later", "notes"),
    [
        (["selection.pool=5"], ["selection.kind=random"], ["selection.pool is not used: selection.kind is 'random'"]),
        (
            ["sites.kind=particles", "sites.density=log", "algorithm.distill_steps=4"],
            ["sites.kind=curvature"],
            [
                "sites.density is not used: sites.kind is 'curvature'",
                "algorithm.distill_steps is not used: sites.kind is 'curvature'",
            ],
        ),
        (["sites.damping=0.5"], ["algorithm.kind=fedavg"], ["sites.damping is not used: sites.kind is 'none'"]),
        (["selection.order=seeded"], ["selection.kind=hip"], ["selection.order is not used: selection.kind is 'hip'"]),
    ],
)
def test_leftovers_of_a_base_are_noted(base, later, notes):
    config, found = resolve(layers(base, later), BINARY)
    assert found == notes
    for note in notes:
        section, _, key = note.split(" ")[0].partition(".")
        assert getattr(getattr(config, section), key, None) is None


def test_a_key_in_a_later_layer_than_the_kind_is_refused():
    with pytest.raises(InputError, match=r"selection\.pool is not used"):
        resolve(layers(["selection.kind=random"], ["selection.pool=5"]), BINARY)


def test_a_value_that_could_never_be_right_is_refused_even_in_a_leftover():
    with pytest.raises(InputError, match=r"sites\.bandwidth: .*greater than 0, got -1"):
        resolve(layers(["sites.kind=particles", "sites.bandwidth=-1"], ["sites.kind=curvature"]), BINARY)
    assert resolve(layers(["rounds=0"], ["rounds=4"]), BINARY)[0].rounds == 4


def test_the_layers_of_a_command(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[sites]\ndensity = 'log'\n[selection]\npool = 4\n")
    read = read_layers(file, ["selection.kind=random"], 3, "paper")
    assert [name for name, _ in read] == ["preset paper", str(file), "the command line"]
    config, notes = resolve(read, BINARY)
    assert (config.seed, config.sites.kind, config.sites.density) == (3, "particles", "log")
    assert notes == ["selection.pool is not used: selection.kind is 'random'"]
    assert read_layers(None, []) == []


def test_a_preset_that_changes_nothing_is_noted():
    later = read_layers(None, ["sites.kind=curvature"], preset="paper")
    note = "the preset 'paper' changes nothing: the command line sets sites.kind = 'curvature'"
    assert resolve(later, BINARY)[1] == [note]
    assert resolve(read_layers(None, ["sites.kind=particles"], preset="paper"), BINARY)[1] == []


def test_a_model_of_ones_own_goes_through_the_same_rules():
    for dim, structure in ((200, "full"), (201, "diagonal")):
        config, _ = resolve({}, Facts("classification", 3, 4, ModelTraits(), dim))
        assert (config.model.kind, config.sites.structure, config.algorithm.step_size) == ("custom", structure, 0.01)
        assert type(config).model_validate(config.to_dict()) == config


@pytest.mark.parametrize(
    "some",
    [
        ["engine.kind=flower", "evaluate.where=clients", "privacy.sums=secure"],
        ["privacy.kind=record", "privacy.epsilon=3.0", "selection.kind=round_robin", "rounds=4"],
        ["robust.kind=bounded", "robust.pull=2.0", "robust.rest=3"],
        ["robust.rest=3"],
        [],
    ],
    ids=["secure sums", "private", "robust", "resting", "usual"],
)
def test_a_resolved_config_with_or_without_privacy_is_taken_as_it_is(some: list[str]) -> None:
    """A resolved config names no key that it has no use for: it is what runs and apps are started from."""
    config, _ = resolve(layers(some), BINARY)
    again, notes = resolve([("config.toml", config.to_dict())], BINARY)
    assert again == config
    assert not notes
