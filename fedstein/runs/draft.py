"""A config that is being resolved: the user's settings, the values that rules have added, and the class defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fedstein.data import DATASETS, DatasetInfo
from fedstein.errors import InputError
from fedstein.inference.methods import MethodKind
from fedstein.inference.sites import SiteKind
from fedstein.models import ModelTraits
from fedstein.registry import unknown_name
from fedstein.runs.sections import FAMILIES, SECTIONS, find_kind, settings_class
from fedstein.selection import SchemeKind
from fedstein.settings import Settings


class Facts(NamedTuple):
    """The facts about the data, and about a model of the user's own, that defaults depend on.

    Attributes:
        task: ``"classification"`` or ``"regression"``.
        classes: The number of classes; 0 for regression.
        clients: The clients that the data itself names; 0 if it names none.
        traits: The traits of a model that no registry has, which rules need; None for models that a config can name.
        dim: The number of parameters of such a model; 0 for models that a config can name.
        features: The number of features; 0 if it is not known.
    """

    task: str
    classes: int
    clients: int = 0
    traits: ModelTraits | None = None
    dim: int = 0
    features: int = 0


class Draft:
    """The values of a config so far. ``draft["sites.damping"]`` is the current value of the key.

    A key that the chosen kind does not take is None, whatever the user wrote. The kind of a section is known as soon as
    the user or a rule has named it.
    """

    def __init__(self, written: Mapping[str, Any], facts: Facts):
        """
        Args:
            written: The user's settings, with known names and possible values.
            facts: What is known about the data.

        Raises:
            InputError: There is no dataset of the name.
        """
        self.facts = facts
        self.written = flatten(written)
        self.by_rule: dict[str, tuple[Rule, Any]] = {}  # the rule for a key, and the value that it gives
        name = self.written.get("data.name", settings_class("data").model_fields["name"].default)
        if name not in DATASETS:
            raise InputError(unknown_name("value of data.name", name, list(DATASETS)))
        self.dataset: DatasetInfo = DATASETS[name]

    def wrote(self, key: str) -> bool:
        """Whether the user wrote the key."""
        return key in self.written

    def settings(self, section: str) -> type[Settings]:
        """The settings class of a section, for its current kind."""
        return settings_class(section, self[f"{section}.kind"] if section in FAMILIES else None)

    def __getitem__(self, key: str) -> Any:
        section, _, name = key.rpartition(".")
        if section and name != "kind":
            field = self.settings(section).model_fields.get(name)
            if field is None:
                return None
            if key not in self.written and key not in self.by_rule:
                return field.get_default(call_default_factory=True)
        return self.written[key] if key in self.written else self.by_rule[key][1]

    def takes(self, rule: Rule) -> bool:
        """Whether the chosen kind has the rule's key, and its settings class has no default of its own for it."""
        section, _, name = rule.key.rpartition(".")
        if not section or name == "kind":
            return True
        settings = self.settings(section)
        if rule.of is None:
            return name in settings.model_fields
        return issubclass(settings, rule.of) and defining_class(settings, name) in rule.of.__mro__

    def apply(self, rules: Sequence[Rule]) -> Draft:
        """Apply to every key the first rule that holds. Keys that the user wrote keep their values.

        Args:
            rules: The rules, in an order in which each rule needs only keys of earlier rules.

        Returns:
            This draft.
        """
        for rule in rules:
            if rule.key not in self.by_rule and self.takes(rule) and rule.when(self):
                self.by_rule[rule.key] = (rule, rule.value(self) if callable(rule.value) else rule.value)
        return self

    def values(self, without: Sequence[str] = ()) -> dict[str, Any]:
        """Return all values that the user or a rule has set, as a nested dict. Other keys have their class defaults.

        Args:
            without: Keys that are left out.
        """
        decided = {key: value for key, (_, value) in self.by_rule.items()} | self.written
        nested: dict[str, Any] = {section: {} for section in SECTIONS}
        for key, value in decided.items():
            section, _, name = key.rpartition(".")
            if key not in without:
                (nested[section] if section else nested)[name] = value
        return nested

    @property
    def traits(self) -> ModelTraits:
        """The facts about the model that rules use."""
        return self.facts.traits or find_kind("model", self["model.kind"]).traits

    @property
    def method(self) -> MethodKind:
        """The chosen method."""
        return find_kind("algorithm", self["algorithm.kind"])

    @property
    def site(self) -> SiteKind:
        """The chosen kind of site."""
        return find_kind("sites", self["sites.kind"])

    @property
    def scheme(self) -> SchemeKind:
        """The chosen selection scheme."""
        return find_kind("selection", self["selection.kind"])


class Rule(NamedTuple):
    """A default that depends on other parts of the config, or on the data.

    Attributes:
        key: ``section.key``.
        when: Draft -> whether the rule holds. If several rules for a key hold, the first one applies.
        value: The default, or a function that computes it from the draft.
        reason: One sentence for users: what the default is, when, and why.
        of: The settings class that the rule was written for. The rule also applies to subclasses, unless they have a
            default of their own. None applies to every class that has the key.
    """

    key: str
    when: Callable[[Draft], bool]
    value: Any
    reason: str
    of: type[Settings] | None = None


def flatten(nested: Mapping[str, Any]) -> dict[str, Any]:
    """``{"sites": {"kind": ...}}`` -> ``{"sites.kind": ...}``."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{key}": inner for key, inner in value.items()})
        else:
            flat[name] = value
    return flat


def defining_class(settings: type[Settings], key: str) -> type | None:
    """The class that states the type and the default of a key: the settings class or one that it inherits from."""
    return next((base for base in settings.__mro__ if key in inspect.get_annotations(base)), None)
