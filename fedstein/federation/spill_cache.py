"""Clients' states within a budget of memory: the least recently used states spill to disk.

A state never changes once it is made, so its file is written once. The file is removed when nothing refers to the state
any more.
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
from fedstein.files import pack, unpack


class SpillCache:
    """Keeps states of up to ``budget`` bytes in memory, and the others in files. A budget of 0 sets no limit."""

    def __init__(self, budget: int = 0):
        self.budget = budget
        self.bytes_in_memory = 0
        self._recent: OrderedDict[int, weakref.ref[Kept]] = OrderedDict()  # the states in memory, the most recent last
        self._folder: Path | None = None
        self._made = 0

    def keep(self, state: Mapping[str, Array]) -> Mapping[str, Array]:
        """Take a state into the cache.

        Args:
            state: Named arrays.

        Returns:
            The same arrays under the same names; they may be in a file until they are read.
        """
        if not self.budget or not state:
            return state
        self._made += 1
        kept = Kept(self, self._made, dict(state))
        weakref.finalize(kept, self._drop, kept.number, kept.size).atexit = False  # the folder is removed as a whole
        self._add(kept)
        return kept

    def load(self, kept: Kept) -> dict[str, Array]:
        """The arrays of a state, read back from its file if they are not in memory."""
        arrays = kept.arrays
        if arrays is None:
            path = self._path(kept.number)
            arrays = {name: jnp.asarray(array) for name, array in unpack(path.read_bytes(), path).items()}
            kept.arrays = arrays
            self._add(kept)
        else:
            self._recent.move_to_end(kept.number)
        return arrays

    def count_on_disk(self) -> int:
        """The number of states that are in files and not in memory."""
        if self._folder is None:
            return 0
        return len({path.name for path in self._folder.iterdir()} - {str(n) for n in self._recent})

    def _add(self, kept: Kept) -> None:
        self._recent[kept.number] = weakref.ref(kept)
        self.bytes_in_memory += kept.size
        while self.bytes_in_memory > self.budget and len(self._recent) > 1:
            oldest = self._recent[next(iter(self._recent))]()
            assert oldest is not None  # the finaliser of a deleted state has removed it from this table
            self._spill(oldest)

    def _spill(self, kept: Kept) -> None:
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
        self.bytes_in_memory -= kept.size

    def _path(self, number: int) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="fedstein-sites-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / str(number)

    def _drop(self, number: int, size: int) -> None:
        if self._recent.pop(number, None) is not None:
            self.bytes_in_memory -= size
        if self._folder is not None:
            self._path(number).unlink(missing_ok=True)


class Kept(Mapping[str, Array]):
    """One client's state. Reading an array of it loads the state if it is on disk."""

    def __init__(self, cache: SpillCache, number: int, arrays: dict[str, Array]):
        self.number, self.names = number, tuple(arrays)
        self.arrays: dict[str, Array] | None = arrays  # None: they are in a file
        self.size = sum(int(array.nbytes) for array in arrays.values())
        self._cache = cache

    def __getitem__(self, name: str) -> Array:
        if name not in self.names:
            raise KeyError(name)
        return self._cache.load(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
