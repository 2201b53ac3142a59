"""Registries: where a name in the config becomes a builder, for built-in parts and for plug-ins alike.

A family (selection schemes, sites, methods, models, metrics, codecs, kernels) has one registry. A part enters it in one
of three ways: by ``register``, by an entry point of an installed package (group ``fedstein.schemes`` and so on), or by
an import path in the config (``"my_package.my_module:my_scheme"``). Entry points and import paths run foreign code, so
a process can restrict them: a Flower node imports only the plug-ins that its own operator has listed.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Protocol, TypeVar, cast, get_args, get_type_hints

from fedstein.errors import InputError
from fedstein.plugin_errors import MANUAL, failure, note_plugin, package_of, plugin_code, top_level


class Named(Protocol):
    """The fields of every registered part: a name and a description of one line."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...


Part = TypeVar("Part", bound=Named)

_allowed: ContextVar[frozenset[str] | None] = ContextVar("allowed plug-ins", default=None)  # None allows every plug-in


class UnlistedPlugin(InputError):
    """A plug-in that may not be used here; the text says which one, and how its operator can allow it."""


@contextmanager
def only_plugins(allowed: Sequence[str]) -> Iterator[None]:
    """Allow only the named plug-ins while the context lasts, loaded before or not.

    Args:
        allowed: Import paths (``"package.module:attribute"``) or module names.
    """
    token = _allowed.set(frozenset(allowed))
    try:
        yield
    finally:
        _allowed.reset(token)


def refuse_unlisted(path: str) -> None:
    """Raise unless the plug-in at this import path may be used here.

    Args:
        path: ``"package.module:attribute"``.

    Raises:
        UnlistedPlugin: Plug-ins are restricted and this one is not listed.
    """
    allowed = _allowed.get()
    if allowed is None or path in allowed or path.partition(":")[0] in allowed:
        return
    listed = ", ".join(sorted(allowed)) or "none"
    raise UnlistedPlugin(
        f"plug-in {path!r} is not listed on this node (listed: {listed}); its operator can allow it with "
        f'plugins="{path.partition(":")[0]}" in the node config'
    )


def unknown_name(what: str, got: Any, valid: Sequence[str]) -> str:
    """Make the message for an unknown name, with the most similar valid name."""
    near = difflib.get_close_matches(str(got), valid, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {what}: {got!r}{hint}; expected one of: {', '.join(valid)}"


def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of installed packages.

    Finding them opens a file of every installed package, so they are kept until a folder of ``sys.path`` changes.

    Args:
        group: The group of the entry points, for example ``"fedstein.schemes"``.
    """
    return tuple(_installed(tuple(map(_last_change, sys.path))).select(group=group))


@lru_cache(maxsize=1)
def _installed(folders: tuple[tuple[str, int], ...]) -> Any:
    return entry_points()


def _last_change(folder: str) -> tuple[str, int]:
    try:
        return folder, os.stat(folder or ".").st_mtime_ns
    except OSError:
        return folder, 0


class Registry(Mapping[str, Part], Generic[Part]):
    """The parts of one family by name. Iteration lists built-in and registered parts, then installed entry points."""

    def __init__(self, what: str, group: str, part_type: type[Part]):
        """
        Args:
            what: What a part is called in messages, for example ``"selection.kind"``.
            group: The entry point group that installed packages use.
            part_type: The type that every part of the family has.
        """
        self.what, self.group, self.part_type = what, group, part_type
        self._parts: dict[str, Part] = {}
        self._plugins: dict[str, str] = {}  # the import path of each part that came from a plug-in

    def register(self, part: Part) -> Part:
        """Add a part under its own name; returns it.

        Raises:
            InputError: The part has another type than the family's, or its name is taken by another part.
        """
        self._check(part, repr(getattr(part, "name", part)))
        if self._parts.get(part.name, part) is not part:
            raise InputError(f"{self.what} {part.name!r} exists already; choose another name")
        self._parts[part.name] = part
        return part

    def __getitem__(self, name: str) -> Part:
        if name in self._plugins:
            refuse_unlisted(self._plugins[name])
        if name in self._parts:
            return self._parts[name]
        if ":" in name:
            return self._loaded(name, name)
        for point in installed(self.group):
            if point.name == name:
                return self._loaded(point.value, name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        try:
            self[name]  # type: ignore[index]
        except (KeyError, TypeError):
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._parts if ":" not in name)
        yield from (point.name for point in installed(self.group) if point.name not in self._parts)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find(self, name: Any) -> Part:
        """The part of that name.

        Raises:
            InputError: There is no such part; the message lists the valid names.
        """
        try:
            return self[name]
        except (KeyError, TypeError):
            raise InputError(unknown_name(f"value of {self.what}", name, list(self))) from None

    def loaded(self) -> dict[str, Part]:
        """The parts that are here already, by name: built-in and registered ones, and plug-ins that were used before.

        Nothing is imported, so that a plug-in that no config has named cannot run any code.
        """
        return dict(self._parts)

    def plugin_path(self, name: str) -> str | None:
        """The import path of the plug-in that was loaded under this name; None for a built-in part."""
        return self._plugins.get(name)

    def _loaded(self, path: str, name: str) -> Part:
        refuse_unlisted(path)
        module, _, attribute = path.partition(":")
        part: Any = self._imported(module, name)
        for step in attribute.split("."):
            if not hasattr(part, step):
                raise InputError(f"{self.what} = {name!r}: {module!r} has no {attribute!r}")
            part = getattr(part, step)
        self._check(part, path)
        self._parts[name], self._plugins[name] = part, path
        note_plugin(path)
        return part

    def _imported(self, module: str, name: str) -> Any:
        """Import a module of a plug-in. Whatever its code raises becomes an ``InputError``."""
        subject, doing, package = f"{self.what} = {name!r}", f"module {module!r} cannot be imported", top_level(module)
        try:
            return import_module(module)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name == package:
                mend = "install its package, or put the folder with the module into PYTHONPATH"
                raise InputError(f"{subject}: {doing}: {error}; {mend}") from error
            raise failure(subject, doing, error, package) from error

    def _check(self, part: Any, where: str) -> None:
        if not isinstance(part, self.part_type):
            raise InputError(
                f"{self.what}: expected {where} to be a {self.part_type.__name__}, got {type(part).__name__}; {MANUAL}"
            )
        if hasattr(part, "settings") and hasattr(part, "build") and package_of(part.build) != top_level(__name__):
            self._check_kind(part, where)

    def _check_kind(self, part: Any, where: str) -> None:
        """Check the settings class and the ``build`` function of a kind that is not built in."""
        settings = part.settings
        (expected,) = get_args(get_type_hints(self.part_type)["settings"])
        if not (isinstance(settings, type) and issubclass(settings, expected)):
            raise InputError(
                f"{self.what}: expected settings of {where} to be a subclass of {expected.__name__}, got "
                f"{settings!r}; {MANUAL}"
            )
        if not callable(part.build):
            raise InputError(f"{self.what}: expected build of {where} to be a function, got {part.build!r}; {MANUAL}")
        with plugin_code(f"{self.what}: {where}", f"its settings class {settings.__name__} failed", settings):
            cast(Any, settings).model_rebuild()
