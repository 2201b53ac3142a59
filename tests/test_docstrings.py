"""Every public function says what it takes and what it gives back."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def public_modules() -> Iterator[Any]:
    """The modules that list their public names."""
    for path in sorted((ROOT / "fedstein").rglob("*.py")):
        assigned = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for node in assigned for target in node.targets):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions and methods; a method that a base class has too is described there."""
    for module in public_modules():
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{module.__name__}.{name}", found
            for inner, method in vars(found).items() if inspect.isclass(found) else ():
                inherited = any(inner in vars(base) for base in found.__mro__[1:])
                if inspect.isfunction(method) and not inner.startswith("_") and not inherited:
                    yield f"{module.__name__}.{name}.{inner}", method


def missing(function: Callable[..., Any]) -> str:
    """What the docstring of the function does not say."""
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    method = "." in function.__qualname__.removeprefix("<locals>.")
    arguments = [name for name in signature.parameters if not (method and name in ("self", "cls"))]
    gives = signature.return_annotation not in ("None", None, inspect.Signature.empty)
    if not text:
        return "docstring"
    if arguments and "Args:" not in text:
        return "Args"
    if arguments and gives and "Returns:" not in text and "Yields:" not in text:
        return "Returns"
    return "Raises" if "\n    raise " in inspect.getsource(function) and "Raises:" not in text else ""


def test_public_functions_have_args_returns_and_raises() -> None:
    functions = dict(public_functions())
    assert len(functions) > 100
    found = {name: missing(function) for name, function in functions.items()}
    assert {name: what for name, what in found.items() if what} == {}


RIDDLES = re.compile(r'^ *"""(?:What|Who|Why|Of|Nobody|Somebody|Everybody) .*', re.MULTILINE)


def test_docstrings_name_their_subject() -> None:
    """A docstring says what a thing is or does; one that opens with a question word makes the reader guess."""
    assert RIDDLES.findall('    """What came of it."""') != []
    paths = sorted((ROOT / "fedstein").rglob("*.py"))
    assert [f"{path.name}: {line}" for path in paths for line in RIDDLES.findall(path.read_text())] == []
