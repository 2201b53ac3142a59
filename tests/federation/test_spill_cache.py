"""States within a budget of memory: the same bits from a file, and files that go with their states."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.federation.site_table import SharedPart
from fedstein.federation.spill_cache import SpillCache


def state(seed: int) -> dict[str, Any]:
    draws = np.random.default_rng(seed)
    return {
        "eta": jnp.asarray(draws.standard_normal(4), jnp.float32),
        "precision": jnp.asarray(draws.standard_normal((4, 4)), jnp.float32),
    }


SIZE = 80  # bytes of one


def test_without_a_budget_a_state_is_itself():
    one = state(0)
    assert SpillCache().keep(one) is one


def test_states_past_the_budget_wait_in_files_and_come_back_the_same():
    cache = SpillCache(3 * SIZE)
    kept = [cache.keep(state(seed)) for seed in range(5)]
    assert cache.bytes_in_memory == 3 * SIZE
    assert cache.count_on_disk() == 2
    for seed, one in enumerate(kept):
        assert list(one) == ["eta", "precision"]
        assert len(one) == 2
        for name, array in state(seed).items():
            np.testing.assert_array_equal(one[name], array)
            assert one[name].dtype == array.dtype
        assert cache.bytes_in_memory <= 3 * SIZE
    with pytest.raises(KeyError):
        kept[0]["local"]


def test_the_one_used_longest_ago_goes_first():
    cache = SpillCache(2 * SIZE)
    first, second = cache.keep(state(0)), cache.keep(state(1))
    first["eta"]
    cache.keep(state(2))
    assert first.arrays is not None
    assert second.arrays is None


def test_a_state_that_nobody_holds_leaves_no_file():
    cache = SpillCache(SIZE)
    kept = [cache.keep(state(seed)) for seed in range(4)]
    folder = cache._folder
    assert len(list(folder.iterdir())) == 3
    part = SharedPart(kept[0], ("eta",))
    del kept
    gc.collect()
    assert len(list(folder.iterdir())) == 1  # the one that a part still reads
    np.testing.assert_array_equal(part["eta"], state(0)["eta"])
    assert list(part) == ["eta"]
    with pytest.raises(KeyError):
        part["precision"]
    del part
    gc.collect()
    assert list(folder.iterdir()) == []
    assert cache.bytes_in_memory == 0


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch):
    cache = SpillCache(SIZE)
    first = cache.keep(state(0))

    def full(self: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"engine\.budget.*No space left.*TMPDIR"):
        cache.keep(state(1))
    monkeypatch.undo()
    np.testing.assert_array_equal(first["eta"], state(0)["eta"])  # nothing is lost
