"""The table of rules gives the defaults that the code had before there was a table, in every situation.

``resolved_configs.json`` holds configs as commit c7bf1b0 resolved them: one in full, of the others what differs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedstein.models import ModelTraits
from fedstein.runs.config import merge, resolve
from fedstein.runs.defaults import RULES, Facts
from fedstein.runs.draft import flatten
from fedstein.runs.sections import FAMILIES, SECTIONS, all_classes

STORED = json.loads((Path(__file__).parent / "resolved_configs.json").read_text())
# keys that did not exist then
LATER = {
    *(f"channel.{key}" for key in ("codec", "assignment", "broadcast", "packing", "report", "update")),
    "algorithm.kernel",
    "evaluate.join",
    "evaluate.metrics",
    "evaluate.temperature",
    "model.label_noise",
    "model.prior",
    "model.prior_scale",
    "partition.flip",
    "partition.order",
    "selection.projection",
    "selection.speculate",
    "sites.expand",
}


def named(case: dict) -> str:
    return " | ".join(" ".join(layer) for layer in case["layers"]) + f" {case['facts']} {case.get('dim', '')}"


@pytest.mark.parametrize("case", STORED["cases"], ids=named)
def test_configs_are_resolved_as_ever(case):
    layers = [(f"layer {number}", merge({}, settings)) for number, settings in enumerate(case["layers"])]
    facts = Facts(*case["facts"])
    if "dim" in case:  # a model of the user's own, as fedstein.fit passes it on
        facts = facts._replace(traits=ModelTraits(), dim=case["dim"])
        own = {"data": {"name": "file"}, "partition": {"kind": "given"}, "engine": {"precision": "float32"}}
        layers.append(("fedstein.fit", own))
    config, notes = resolve(layers, facts)
    expected = {key: value for key, value in STORED["first"].items() if key not in case["absent"]} | case["changed"]
    got = {key: value for key, value in flatten(config.to_dict()).items() if key not in LATER}
    if "engine.threads" not in expected:
        del got["engine.threads"]
    assert got == expected
    assert {note.split(":")[0] for note in notes} == {note.split(":")[0] for note in case["notes"]}


def test_every_rule_is_about_a_key_that_exists_and_gives_its_reason():
    for rule in RULES:
        section, _, key = rule.key.rpartition(".")
        assert section in SECTIONS or rule.key == "rounds"
        assert not section or any(key in settings.model_fields for settings in all_classes(section)), rule.key
        if rule.of is not None:
            assert key in rule.of.model_fields
        assert rule.reason.endswith(".")
        assert rule.reason[0].isupper()


def test_every_kind_has_a_last_resort():
    """The last rule for a kind holds always, so that every section has one."""
    for section in FAMILIES:
        last = [rule for rule in RULES if rule.key == f"{section}.kind"][-1]
        assert last.when(None)  # type: ignore[arg-type]


def test_every_key_says_what_it_means():
    for section in SECTIONS:
        for settings in all_classes(section):
            for key, field in settings.model_fields.items():
                assert key == "kind" or (field.description or "").endswith("."), (settings.__name__, key)
