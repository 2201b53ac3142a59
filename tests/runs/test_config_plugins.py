"""A part that is no part of Fedstein is configured like a built-in one."""

from __future__ import annotations

import sys
import textwrap

import pytest

from fedstein.errors import InputError
from fedstein.inference.methods import METHODS
from fedstein.runs.config import load_config, merge, resolve
from fedstein.runs.config_docs import chosen_texts
from fedstein.runs.defaults import Facts, drafted
from fedstein.selection import SCHEMES

BINARY = Facts("classification", 2)
PLUGIN = """
from pydantic import Field
from fedstein.inference.methods import MethodKind, SvgdSettings
from fedstein.selection import ReportingSettings, SchemeKind

class LossSettings(ReportingSettings):
    kind: str = "loss"
    draw: str = Field("greedy", description="Of its own.")
    margin: float = Field(0.5, gt=0, description="How far the loss must be off.")

class BoldSettings(SvgdSettings):
    kind: str = "bold"
    step_size: float = Field(7.0, gt=0, description="Of its own.")

loss = SchemeKind("loss", "the largest loss", LossSettings, lambda settings, kernel: None)
bold = MethodKind("bold", "large steps", BoldSettings, lambda model, site, settings: None)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(textwrap.dedent(PLUGIN))
    monkeypatch.syspath_prepend(tmp_path)
    before = [(registry, registry.loaded()) for registry in (SCHEMES, METHODS)]
    yield "own_parts"
    for registry, parts in before:
        registry._parts.clear()
        registry._parts.update(parts)
    sys.modules.pop("own_parts", None)


def test_its_settings_are_its_own(plugin, tmp_path):
    config, notes = resolve(merge({}, [f"selection.kind={plugin}:loss", "selection.margin=0.2"]), BINARY)
    assert notes == []
    assert (config.selection.kind, config.selection.margin, config.selection.pool) == (f"{plugin}:loss", 0.2, 0)
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert load_config(tmp_path / "config.toml") == config
    with pytest.raises(InputError, match=r"selection\.margin: .*greater than 0, got -1"):
        resolve(merge({}, [f"selection.kind={plugin}:loss", "selection.margin=-1"]), BINARY)
    with pytest.raises(InputError, match=r"unknown key in \[selection\]: 'margins' .did you mean 'margin'"):
        resolve(merge({}, [f"selection.kind={plugin}:loss", "selection.margins=1"]), BINARY)


def test_a_default_of_its_own_is_not_overruled(plugin):
    config, _ = resolve(merge({}, [f"algorithm.kind={plugin}:bold"]), BINARY)
    assert (config.algorithm.step_size, config.algorithm.epsilon) == (7.0, 1e-9)


def test_it_is_described_like_the_others(plugin):
    draft = drafted(merge({}, [f"selection.kind={plugin}:loss"]), BINARY)
    texts = {text.key: text for text in chosen_texts(draft)}
    assert texts["selection.margin"].type == "number > 0"
    assert texts["selection.margin"].meaning == "How far the loss must be off."
    assert texts["selection.kind"].meaning.startswith("The largest loss.")
