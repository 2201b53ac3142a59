"""Failures in the code of plug-ins: one line that names the plug-in, the place in its code, and the exception.

A traceback through Fedstein says little to the author of a plug-in. The command line prints the line alone; with the
environment variable ``FEDSTEIN_TRACEBACK=1`` it prints the whole traceback before it. In Python the exception of the
plug-in is the cause of the one that is raised.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any

from fedstein.errors import FedsteinError, InputError

VARIABLE = "FEDSTEIN_TRACEBACK"
MANUAL = "docs/extending.md shows how a plug-in is written"

_used: dict[str, str] = {}  # the top-level package of every plug-in of this process -> its import path


class PluginError(InputError):
    """The code of a plug-in failed. The text says which plug-in, where, with what exception, and what to do."""


def note_plugin(path: str) -> None:
    """Remember that this process uses a plug-in, so that ``explain`` recognises its code.

    Args:
        path: ``"package.module:attribute"``.
    """
    _used.setdefault(top_level(path.partition(":")[0]), path)


def failure(subject: str, doing: str, error: BaseException, package: str) -> PluginError:
    """Make the error for an exception in the code of a plug-in.

    Args:
        subject: The plug-in in the user's words, for example ``"selection.kind = 'mine:scheme'"``.
        doing: What failed, for example ``"its build function failed"``.
        error: The exception.
        package: The top-level package of the plug-in.

    Returns:
        The error, one sentence.
    """
    text, where = " ".join(str(error).split()), place_of(error, package)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = f" ({where})" if where and where not in said else ""  # the message of a SyntaxError names the place already
    return PluginError(
        f"{subject}: {doing}: {said}{place}; correct the plug-in; {VARIABLE}=1 shows the whole traceback"
    )


@contextmanager
def plugin_code(subject: str, doing: str, function: Any) -> Iterator[None]:
    """Turn exceptions of a plug-in's code into a ``PluginError``. Those of built-in parts stay as they are.

    Args:
        subject: The part in the user's words.
        doing: What failed if something does.
        function: The function or class that is used. Its module tells whether it is part of a plug-in.

    Raises:
        PluginError: The code of the plug-in raised an exception.
    """
    package = package_of(function)
    try:
        yield
    except FedsteinError:
        raise
    except Exception as error:
        if package == __package__:
            raise
        raise failure(subject, doing, error, package) from error


def checked_build(what: str, name: str, build: Callable[..., Any], expected: type, *arguments: Any) -> Any:
    """Call the ``build`` function of a kind, and check what it returns.

    Args:
        what: The key of the config, for example ``"selection.kind"``.
        name: Its value.
        build: The function.
        expected: The type that it must return.
        *arguments: What it is called with.

    Returns:
        The part.

    Raises:
        PluginError: The function is part of a plug-in, and it failed or returned something else.
    """
    subject = f"{what} = {name!r}"
    with plugin_code(subject, "its build function failed", build):
        part = build(*arguments)
    if not isinstance(part, expected):
        raise PluginError(
            f"{subject}: expected its build function to return a {expected.__name__}, got {type(part).__name__}; "
            f"{MANUAL}"
        )
    return part


def explain(error: BaseException) -> PluginError | None:
    """Make one line of an exception that came out of a plug-in's code during a run.

    Args:
        error: Any exception.

    Returns:
        The error to show instead; None if no code of a plug-in was involved.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for package, path in _used.items():
            if module_file(frame.filename, package):
                return failure(f"plug-in {path!r}", "its code failed", error, package)
    return None


def package_of(function: Any) -> str:
    """The top-level package of the module that defines a function or a class."""
    return top_level(str(getattr(function, "__module__", None) or type(function).__module__))


def top_level(module: str) -> str:
    """The top-level package of a module."""
    return module.partition(".")[0]


def place_of(error: BaseException, package: str) -> str:
    """Find the line of a package's code that an exception came from.

    Args:
        error: The exception.
        package: The top-level package.

    Returns:
        ``"package/module.py, line 12"``, relative to the folder that Python found the package in; empty if none of
        its lines was running.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{module_file(error.filename, package) or PurePath(error.filename).name}, line {error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if file := module_file(frame.filename, package):
            return f"{file}, line {frame.lineno}"
    return ""


def module_file(filename: str, package: str) -> str:
    """The file relative to the folder that holds its top-level package; empty for a file of another package."""
    path, (own, folders) = PurePath(filename), files_of(package)
    if own is not None and path == PurePath(own):
        return path.name if not folders else str(path.relative_to(path.parent.parent))
    for folder in map(PurePath, folders):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder.parent))
    return ""


def files_of(package: str) -> tuple[str | None, list[str]]:
    """The file of a top-level module or package, and the folders of a package. A failed import has left neither."""
    if (module := sys.modules.get(package)) is not None:
        return getattr(module, "__file__", None), list(getattr(module, "__path__", ()))
    spec = find_spec(package)
    return (None, []) if spec is None else (spec.origin, list(spec.submodule_search_locations or ()))
