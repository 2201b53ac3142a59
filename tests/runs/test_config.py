"""The config: defaults, validation, and one clear sentence for whatever is wrong."""

from __future__ import annotations

import tomllib

import pytest

from fedstein.data import DATASETS, PARTITIONS
from fedstein.data.partition_kinds import PARTITION_KINDS
from fedstein.errors import InputError
from fedstein.models import MODELS
from fedstein.runs.config import Config, computing, load_config, merge, parse_setting, resolve, with_preset
from fedstein.runs.defaults import Facts
from fedstein.runs.sections import FAMILIES
from fedstein.selection import ReportingSettings

BINARY = Facts("classification", 2)


def test_the_default_is_the_papers_covertype_run():
    config, notes = resolve({}, BINARY)
    assert notes == []
    assert (config.data.name, config.model.kind, config.selection.kind) == ("covertype", "blr", "ksd")
    assert (config.partition.kind, config.partition.clients, config.partition.rows_per_client) == (
        "label_ratio",
        30,
        500,
    )
    assert (config.algorithm.particles, config.algorithm.local_steps, config.algorithm.temperature) == (20, 10, 1.0)
    assert config.engine.threads >= 1, "0 is replaced by the number used"


@pytest.mark.parametrize("name", [name for name, info in DATASETS.items() if info.origin not in ("file", "nodes")])
def test_every_dataset_has_defaults_that_validate_and_survive_the_run_folder(name, tmp_path):
    info = DATASETS[name]
    config, notes = resolve({"data": {"name": name}}, Facts(info.task, info.classes))
    assert notes == []
    assert MODELS[config.model.kind].task == info.task
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert load_config(tmp_path / "config.toml") == config
    assert resolve(tomllib.loads(config.to_toml()), Facts(info.task, info.classes)) == (config, [])


def test_mnist_gets_the_network_and_its_step_size():
    config, _ = resolve({"data": {"name": "mnist"}}, Facts("classification", 9))
    assert (config.model.kind, config.model.hidden, config.algorithm.step_size) == ("bnn_classifier", [100], 4e-3)
    assert (config.partition.kind, config.partition.classes, config.partition.clients) == ("classes_per_client", 3, 27)


def test_rows_per_client_follow_the_suggestion_only_with_the_suggested_clients():
    assert resolve({"partition": {"clients": 7}}, BINARY)[0].partition.rows_per_client == 0
    assert resolve({"partition": {"clients": 30}}, BINARY)[0].partition.rows_per_client == 500


def test_a_kind_has_the_settings_class_that_stands_beside_its_builder():
    assert set(PARTITION_KINDS) == set(PARTITIONS)
    for section, family in FAMILIES.items():
        for name, part in family.items():
            fields = part.settings.model_fields
            assert fields["kind"].default == name, (section, name)
            assert all(not field.is_required() for field in fields.values()), (section, name)
    config, _ = resolve({"selection": {"kind": "random"}}, BINARY)
    assert not isinstance(config.selection, ReportingSettings)
    assert not hasattr(config.selection, "pool"), "a key that does not belong to the kind is not there"


def test_a_config_survives_json_and_copies(tmp_path):
    config, _ = resolve(merge({}, ["engine.kind=flower", "engine.patience=3.0"]), BINARY)
    assert Config.model_validate_json(config.model_dump_json(exclude_none=True)) == config
    assert Config.model_validate(config.to_dict()) == config
    assert computing(config.engine).model_dump(include={"kind", "threads", "precision", "device"}) == {
        "kind": "flower",
        "threads": config.engine.threads,
        "precision": "float32",
        "device": "auto",
    }
    assert computing(config.engine) == computing(resolve({"engine": {"kind": "flower"}}, BINARY)[0].engine)


@pytest.mark.parametrize("lacking", ["rounds", "step_size", "per_round", "clients", "stiffness", "kind"])
def test_a_run_folder_must_spell_out_what_depends_on_other_parts(lacking, tmp_path):
    config, _ = resolve({}, BINARY)
    text = "\n".join(line for line in config.to_toml().splitlines() if not line.startswith(f"{lacking} ="))
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(InputError, match=f"is not the config of a run: .*{lacking}"):
        load_config(tmp_path / "config.toml")


def test_a_folder_from_before_there_were_channels_is_read(tmp_path):
    config, _ = resolve({}, BINARY)
    raw = {key: value for key, value in config.to_dict().items() if key != "channel"}
    del raw["algorithm"]["kernel"], raw["evaluate"]["metrics"], raw["engine"]["budget"]
    assert Config.model_validate(raw) == config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["selection.kind=kds"], ["selection.kind", "'kds'", "did you mean 'ksd'", "round_robin, random, ksd, hip"]),
        (["algorithm.partciles=3"], ["'partciles'", "did you mean 'particles'", "local_steps"]),
        (["selction.kind=ksd"], ["'selction'", "did you mean 'selection'"]),
        (["algorithm.particles=1"], ["algorithm.particles = 1", "'dsvgd'", "at least 2"]),
        (["algorithm.particles=0"], ["algorithm.particles", "greater than or equal to 1", "got 0"]),
        (["algorithm.local_steps=0"], ["algorithm.local_steps", "got 0"]),
        (["sites.kind=particles", "algorithm.distill_steps=0"], ["algorithm.distill_steps", "got 0"]),
        (["sites.kind=particles", "sites.bandwidth=0"], ["sites.bandwidth", "greater than 0"]),
        (["sites.kind=particles", "sites.bandwidth=-1"], ["sites.bandwidth", "got -1"]),
        (["sites.kind=particles", "sites.bandwidth=nan"], ["sites.bandwidth", "got nan"]),
        (["algorithm.temperature=inf"], ["algorithm.temperature", "got inf"]),
        (["algorithm.step_size=big"], ["algorithm.step_size", "got 'big'"]),
        (["algorithm.schedule=cosin"], ["algorithm.schedule", "did you mean 'cosine'"]),
        (["algorithm.kind=fedavg", "selection.kind=ksd"], ["'ksd'", "'fedavg'", "use round_robin or random"]),
        (["algorithm.kind=pooled_svgd", "selection.kind=hip"], ["'hip'", "'pooled_svgd'", "use round_robin"]),
        (["algorithm.kind=pooled_svgd", "algorithm.particles=1"], ["algorithm.particles = 1", "at least 2"]),
        (["sites.kind=none"], ["sites.kind = 'none'", "'dsvgd'", "use curvature or particles"]),
        (["algorithm.kind=fedavg", "sites.kind=curvature"], ["'curvature'", "'fedavg'", "use none"]),
        (["algorithm.kind=parallel_dsvgd", "sites.kind=none"], ["'none'", "use curvature or particles"]),
        (["sites.stiffness=0"], ["sites.stiffness", "greater than 0", "got 0"]),
        (["sites.kind=curvature", "sites.damping=0"], ["sites.damping", "greater than 0", "got 0"]),
        (["sites.kind=curvature", "sites.damping=2"], ["sites.damping", "less than or equal to 1", "got 2"]),
        (["sites.kind=curvature", "sites.structure=eigne"], ["sites.structure", "did you mean 'eigen'"]),
        (["sites.kind=curvature", "sites.label_samples=-1"], ["sites.label_samples", "got -1"]),
        (["sites.kind=curvature", "sites.structure=eigen", "sites.rank=-1"], ["sites.rank", "got -1"]),
        (["sites.bandwidth=-1"], ["sites.bandwidth", "greater than 0", "got -1"]),
        (["engine.patience=often"], ["engine.patience", "got 'often'"]),
        (["channel.codec=zip"], ["channel.codec", "'zip'", "plain"]),
        (["algorithm.kernel=rbv"], ["algorithm.kernel", "did you mean 'rbf'"]),
        (["engine.kind=cloud"], ["engine.kind", "local, flower"]),
        (["engine.kind=[1]"], ["engine.kind", "local, flower"]),
        (["model.kind=custom"], ["model.kind", "'custom'", "blr"]),
        (["selection.kind=no.such.module:thing"], ["selection.kind", "no.such.module", "cannot be imported"]),
        (["data.name=covertpe"], ["data.name", "did you mean 'covertype'"]),
        (["selection.barred=[0, 0]"], ["selection.barred", "different ids"]),
        (["algorithm.kind=fedavg", "partition.clients=2", "selection.barred=[0, 1]"], ["barred", "at least one left"]),
        (["sites.renew=true"], ["sites.renew", "selection.kind = 'hip'", "got 'ksd'"]),
        (["sites.renew=true", "selection.kind=hip", "selection.projection=9"], ["sites.renew", "projection = 9"]),
        (["sites.renew=true", "selection.kind=hip", "sites.damping=0.5"], ["sites.renew", "damping = 1", "got 0.5"]),
        (["rounds=0"], ["rounds", "got 0"]),
        (["seed=-1"], ["seed", "got -1"]),
        (["partition.clients=0"], ["partition.clients", "got 0"]),
        (["selection.per_round=31"], ["per_round = 31", "clients = 30"]),
        (["selection.pool=31"], ["pool = 31", "use 0"]),
        (["selection.pool=2", "selection.per_round=3"], ["pool = 2", "per_round = 3"]),
        (["model.start=fan_in"], ["model.start", "blr", "prior, wide"]),
        (["sites.density=lgo"], ["sites.density", "did you mean 'log'"]),
        (["data=3"], ["[data]", "section"]),
        (["rounds.x=3"], ["rounds", "section"]),
        (["a.b.c=1"], ["3 levels"]),
        (["selection"], ["section.key=value", "'selection'"]),
    ],
)
def test_wrong_settings_get_one_sentence(settings, words):
    with pytest.raises(InputError) as caught:
        resolve(merge({}, settings), BINARY)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_sites_and_references_have_defaults_of_their_own():
    """The paper's steps with the paper's sites, else those that settle; only keys that are used."""
    paper, _ = resolve(with_preset("paper", {}), BINARY)
    assert (paper.algorithm.schedule, paper.algorithm.distill_steps, paper.model.start) == ("constant", 10, "wide")
    curved, notes = resolve(merge({}, ["sites.kind=curvature"]), BINARY)
    assert notes == []
    assert (curved.sites.structure, curved.sites.damping, curved.sites.rank) == ("full", 1.0, None)
    assert (curved.algorithm.schedule, curved.algorithm.distill_steps, curved.model.start) == ("cosine", None, "prior")
    network, _ = resolve(merge({}, ["sites.kind=curvature", "data.name=mnist"]), Facts("classification", 9))
    assert (network.sites.structure, network.sites.rank, network.algorithm.step_size) == ("eigen", 0, 4e-3)
    average, _ = resolve(merge({}, ["algorithm.kind=fedavg"]), BINARY)
    assert (average.algorithm.particles, average.algorithm.step_size, average.sites.kind) == (1, 0.5, "none")
    assert (average.selection.kind, average.selection.per_round) == ("round_robin", 30)
    pooled, _ = resolve(merge({}, ["algorithm.kind=pooled_svgd"]), BINARY)
    assert (pooled.selection.kind, pooled.selection.per_round, pooled.sites.kind) == ("round_robin", 1, "none")


def test_networks_with_sites_that_remember_are_renewed_by_hip():
    """Where no scheme is named; a scheme that is named is what it always was."""
    mnist, network = ["data.name=mnist"], Facts("classification", 9)

    def chosen(*settings):
        config, notes = resolve(merge({}, [*mnist, *settings]), network)
        assert notes == []
        found = config.selection.kind, getattr(config.selection, "draw", None), getattr(config.selection, "pool", None)
        return (*found, getattr(config.sites, "renew", None))

    assert chosen() == ("hip", "pass", 9, True)
    assert chosen("partition.clients=10", "selection.draw=aged") == ("hip", "aged", 4, True)
    assert chosen("selection.per_round=12")[2] == 12
    assert chosen("selection.pool=0", "selection.report_rows=50") == ("hip", "pass", 0, True)
    assert chosen("selection.kind=hip") == ("hip", "proportional", 0, True)
    assert chosen("selection.kind=hip", "sites.renew=false")[3] is False
    assert chosen("selection.kind=hip", "sites.damping=0.5")[3] is False
    assert chosen("selection.kind=ksd") == ("ksd", "proportional", 0, False)
    assert chosen("sites.kind=particles") == ("ksd", "proportional", 0, None)
    assert chosen("algorithm.kind=parallel_dsvgd")[0] == "round_robin"
    linear = [
        resolve(merge({}, ["selection.kind=hip", *more]), BINARY)[0].sites.renew
        for more in ([], ["selection.report_rows=50"])
    ]
    assert linear == [True, False], "full sites are a posterior of their own, which a few rows would spoil"


def test_sites_that_are_replaced_together_are_damped_to_a_third_of_all():
    def damping(*settings):
        config, _ = resolve(merge({}, ["data.name=mnist", *settings]), Facts("classification", 9))
        return getattr(config.sites, "damping", None)

    together = "algorithm.kind=parallel_dsvgd"
    assert damping() == damping("selection.per_round=9") == 1.0
    assert damping(together) == damping(together, "selection.per_round=27") == 0.3333
    assert damping(together, "selection.per_round=9") == damping(together, "selection.per_round=2") == 1.0
    assert damping(together, "selection.per_round=18") == 0.5
    assert damping(together, "sites.damping=0.8") == 0.8
    assert damping(together, "sites.kind=particles") is None


def test_a_preset_gives_way_to_what_the_user_says():
    raw = with_preset("paper", merge({}, ["sites.density=log", "selection.kind=hip"]))
    assert raw == {"sites": {"kind": "particles", "density": "log"}, "selection": {"kind": "hip"}}
    assert with_preset("paper", {"sites": {"kind": "curvature"}})["sites"] == {"kind": "curvature"}
    assert with_preset(None, {"rounds": 3}) == {"rounds": 3}
    with pytest.raises(InputError, match=r"unknown preset: 'papr'.*did you mean 'paper'"):
        with_preset("papr", {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b=3.5", 3.5),
        ("a.b=true", True),
        ("a.b=[50, 20]", [50, 20]),
        ('a.b="7"', "7"),
        ("a.b=word", "word"),
        ("a.b=two words", "two words"),
        ("a.b=x=y", "x=y"),
        ("a.b=1\nc=2", "1\nc=2"),
    ],
)
def test_set_values_parse_as_toml_else_as_a_string(text, value):
    keys, got = parse_setting(text)
    assert keys == ["a", "b"]
    assert got == value
    assert type(got) is type(value)


def test_set_does_not_change_what_was_read():
    base = {"selection": {"kind": "ksd"}}
    assert merge(base, ["selection.kind=hip"])["selection"]["kind"] == "hip"
    assert base == {"selection": {"kind": "ksd"}}
