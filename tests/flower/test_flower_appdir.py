"""The app folder: settings survive Flower's flat config, Flower accepts the app, other people's files stay."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from flwr.common.config import get_fused_config_from_dir, parse_config_args, validate_config
from hypothesis import given
from hypothesis import strategies as st

from fedstein.errors import InputError
from fedstein.flower.launch.appdir import flatten, unflatten, write_app
from fedstein.flower.launch.instructions import node_settings, print_commands

scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
awkward = st.sampled_from(["", "[", "[1]", '"', '"x"', "{}", "{", " [", "true", "1", "nan", "a\nb", "'", "\\"])
lists = st.lists(scalars | awkward, max_size=4)
keys = st.text("abz-_09 é", min_size=1, max_size=5)
settings = st.recursive(
    st.dictionaries(keys, scalars | awkward | lists, max_size=4),
    lambda inner: st.dictionaries(keys, inner | scalars | lists, max_size=4),
    max_leaves=8,
)


@given(settings)
def test_flatten_and_unflatten_are_inverse(config: dict):
    flat = flatten(config)
    assert all(isinstance(value, (str, bool, int, float)) for value in flat.values())
    back = unflatten(flat)
    assert back == config
    assert repr(back) == repr(unflatten(flatten(back)))  # types too: 1, 1.0 and True are equal


@given(settings)
def test_settings_survive_the_file_and_flower(tmp_path_factory: pytest.TempPathFactory, config: dict):
    folder = tmp_path_factory.mktemp("app")
    write_app(folder, flatten(config))
    fused = get_fused_config_from_dir(folder, {})
    assert unflatten(fused) == config


def test_flower_accepts_the_app_and_overrides_a_dotted_key(tmp_path: Path):
    path = write_app(tmp_path / "app", flatten({"seed": 0, "selection": {"kind": "ksd", "barred": [1, 2]}}))
    valid, errors, warnings = validate_config(tomllib.loads(path.read_text()), check_module=False)
    assert (valid, errors, warnings) == (True, [], [])
    assert sorted(one.name for one in path.parent.iterdir()) == ["pyproject.toml"]
    fused = get_fused_config_from_dir(path.parent, parse_config_args(['selection.kind="hip" seed=3']))
    assert unflatten(fused) == {"seed": 3, "selection": {"kind": "hip", "barred": [1, 2]}}


def test_an_app_of_ours_is_replaced_and_nothing_else(tmp_path: Path):
    write_app(tmp_path / "app", {"seed": 0})
    path = write_app(tmp_path / "app", {"seed": 1})
    assert tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"] == {"seed": 1}
    (tmp_path / "app" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        write_app(tmp_path / "app", {"seed": 2})


@pytest.mark.parametrize("content", ['[project]\nname = "theirs"\n', "not TOML", "", "project = 1"])
def test_a_foreign_project_is_left_alone(tmp_path: Path, content: str):
    (tmp_path / "pyproject.toml").write_text(content)
    with pytest.raises(InputError, match="choose another folder"):
        write_app(tmp_path, {})
    assert (tmp_path / "pyproject.toml").read_text() == content


def test_a_file_in_place_of_the_folder(tmp_path: Path):
    (tmp_path / "app").write_text("")
    with pytest.raises(InputError, match="found a file"):
        write_app(tmp_path / "app", {})


@pytest.mark.parametrize(
    "config", [{"a.b": 1}, {"": 1}, {"a": None}, {"a": [None]}, {"a": object()}], ids=lambda config: repr(config)[:12]
)
def test_what_toml_cannot_hold_is_refused(config: dict):
    with pytest.raises(InputError, match="expected"):
        flatten(config)


@pytest.mark.parametrize("flat", [{"a": 1, "a.b": 2}, {"a.b": 2, "a": 1}, {"a": "[1"}, {"a": '"'}])
def test_what_flatten_never_wrote_is_refused(flat: dict):
    with pytest.raises(InputError, match="expected"):
        unflatten(flat)


@pytest.mark.parametrize("value", [2**63, [1], None])
def test_settings_that_flower_cannot_send(tmp_path: Path, value: object):
    with pytest.raises(InputError, match="expected k to"):
        write_app(tmp_path / "app", {"k": value})
    assert not (tmp_path / "app").exists()


NODE = {"name": "north", "data": "/a b/c.csv", "rows": 3, "rate": 0.5, "flag": True, "odd": 'say "x"'}


def test_a_node_config_is_read_back_by_flower():
    assert parse_config_args([node_settings(NODE)]) == NODE
    with pytest.raises(InputError, match="mixed quotes"):
        node_settings({"name": "\"'"})


def test_the_commands_name_every_part(tmp_path: Path):
    own = {"name": "north", "data": "/a b/c.csv", "policy": "n.toml"}
    nodes = {"north": own, "south": {"name": "south", "partition-id": 1}}
    text = print_commands(tmp_path / "app", nodes, host="link.example")
    plain, secure = text.split("# B. ")
    assert "FLWR_TELEMETRY_ENABLED=0" in plain
    for part in (plain, secure):
        for command in ("flower-superlink", "flower-superexec", "flwr run"):
            assert part.count(f"\n{command} ") == 1
        assert part.count("\nfedstein node link.example:8000 ") == 2
        assert f"fedstein node policy {tmp_path / 'app'} > n.toml\nfedstein node link.example:8000 " in part
        assert "reach no path but /v1/fleet/" in part
    assert "--name north --data '/a b/c.csv' --policy n.toml" in plain
    assert "--insecure" in plain
    assert "--insecure" not in secure
    assert secure.count("flwr supernode register") == 2
    assert secure.count(" --key ") == 2
