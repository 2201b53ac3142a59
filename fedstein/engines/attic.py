"""Clients' states within a budget of memory: past it those that were used longest ago wait in files.

A state never changes once it is made, so its file is written once; it goes when nobody holds the state any more.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax.numpy as jnp
from jax import Array

from fedstein.errors import InputError
from fedstein.runs.files import pack, unpack


class Attic:
    """``budget`` in bytes; 0: everything stays in memory."""

    def __init__(self, budget: int = 0):
        self.budget = budget
        self.held = 0  # bytes in memory
        self._recent: OrderedDict[int, weakref.ref[Kept]] = OrderedDict()  # those in memory, the latest last
        self._folder: Path | None = None
        self._made = 0

    def keep(self, state: Mapping[str, Array]) -> Mapping[str, Array]:
        """The same arrays under the same names; they may be out in a file until somebody reads them."""
        if not self.budget or not state:
            return state
        self._made += 1
        kept = Kept(self, self._made, dict(state))
        weakref.finalize(kept, self._drop, kept.number, kept.size).atexit = False  # the folder goes as a whole
        self._hold(kept)
        return kept

    def bring(self, kept: Kept) -> dict[str, Array]:
        """Its arrays, read back where they are out."""
        arrays = kept.arrays
        if arrays is None:
            path = self._path(kept.number)
            arrays = {name: jnp.asarray(array) for name, array in unpack(path.read_bytes(), path).items()}
            kept.arrays = arrays
            self._hold(kept)
        else:
            self._recent.move_to_end(kept.number)
        return arrays

    def out(self) -> int:
        """How many states are in files now and not in memory."""
        if self._folder is None:
            return 0
        return len({path.name for path in self._folder.iterdir()} - {str(n) for n in self._recent})

    def _hold(self, kept: Kept) -> None:
        self._recent[kept.number] = weakref.ref(kept)
        self.held += kept.size
        while self.held > self.budget and len(self._recent) > 1:
            oldest = self._recent[next(iter(self._recent))]()
            assert oldest is not None  # its end takes it out of here
            self._put_out(oldest)

    def _put_out(self, kept: Kept) -> None:
        assert kept.arrays is not None
        path = self._path(kept.number)
        if not path.exists():
            try:
                path.write_bytes(pack(kept.arrays))
            except OSError as error:
                path.unlink(missing_ok=True)
                raise InputError(
                    f"clients' sites take more than engine.budget, and {path.parent} has no room for the others "
                    f"({error.strerror}); raise the budget, or set TMPDIR to a folder with more room"
                ) from error
        kept.arrays = None
        del self._recent[kept.number]
        self.held -= kept.size

    def _path(self, number: int) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="fedstein-sites-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / str(number)

    def _drop(self, number: int, size: int) -> None:
        if self._recent.pop(number, None) is not None:
            self.held -= size
        if self._folder is not None:
            self._path(number).unlink(missing_ok=True)


class Kept(Mapping[str, Array]):
    """One client's state; reading it brings it back."""

    def __init__(self, attic: Attic, number: int, arrays: dict[str, Array]):
        self.number, self.names = number, tuple(arrays)
        self.arrays: dict[str, Array] | None = arrays  # None: they are in a file
        self.size = sum(int(array.nbytes) for array in arrays.values())
        self._attic = attic

    def __getitem__(self, name: str) -> Array:
        if name not in self.names:
            raise KeyError(name)
        return self._attic.bring(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class Part(Mapping[str, Array]):
    """Some of a state's arrays, read when they are asked for."""

    def __init__(self, whole: Mapping[str, Array], names: tuple[str, ...]):
        self._whole, self._names = whole, names

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._whole[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
