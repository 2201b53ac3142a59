"""The embedded samples and the sets scikit-learn ships: shapes, scaling, disjoint splits, checksums, licences."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedstein import data
from fedstein.data import covertype, mnist
from fedstein.data.dataset import Dataset
from fedstein.data.npz import content_sha256, npz_bytes, read_npz
from fedstein.errors import InputError

LOCAL = [name for name, info in data.DATASETS.items() if info.origin in ("embedded", "scikit-learn")]
PINNED = {
    covertype.EMBEDDED: "87fec8119a6a234bef68366562e3f5f0ec4695c9848bccea09f36bfb05b93ed6",
    mnist.EMBEDDED: "b5960f90e43d24adf6acd39c358ea4a6e10aa96fd0cc58484f67d0b607d3dcb2",
}


@pytest.fixture(scope="module")
def loaded() -> dict[str, Dataset]:
    return {name: data.load(name) for name in LOCAL}


@pytest.mark.parametrize("name", LOCAL)
def test_registry_tells_the_truth(name: str, loaded: dict[str, Dataset]) -> None:
    info, got = data.DATASETS[name], loaded[name]
    assert got.name == name
    assert got.task == info.task
    assert got.train_x.shape == (info.train_rows, info.features)
    assert got.test_x.shape == (info.test_rows, info.features)
    assert got.classes == info.classes == len(got.label_names)
    assert got.train_x.dtype == got.test_x.dtype == np.float32
    assert got.train_y.dtype == got.test_y.dtype == (np.int32 if info.classes else np.float32)


@pytest.mark.parametrize("name", LOCAL)
def test_suggested_partition_works(name: str, loaded: dict[str, Dataset]) -> None:
    info = data.DATASETS[name]
    shards = data.partition(
        loaded[name], info.partition, clients=info.clients, rows_per_client=info.rows_per_client, seed=0
    )
    assert len(shards) == info.clients


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.name)
def test_embedded_files_are_pinned_small_and_licensed(path: Path) -> None:
    arrays = read_npz(path)
    assert content_sha256(arrays) == PINNED[path]
    assert path.stat().st_size < 4_000_000
    text = path.with_name(f"{path.stem}.LICENSE.txt").read_text()
    assert "creativecommons.org/licenses/by" in text
    assert "Changes made" in text
    assert ("Blackard" in text and "Colorado State University" in text) or ("LeCun" in text and "Cortes" in text)


def test_same_arrays_give_the_same_bytes() -> None:
    arrays: dict[str, np.ndarray] = {"b": np.arange(5), "a": np.eye(3, dtype=np.float32)}
    assert npz_bytes(arrays) == npz_bytes(dict(reversed(arrays.items())))


def test_covertype_standardised_with_training_rows_only(loaded: dict[str, Dataset]) -> None:
    got, raw = loaded["covertype"], read_npz(covertype.EMBEDDED)["numeric"].T.astype(np.float64)
    train = raw[covertype.EMBEDDED_TEST :]
    np.testing.assert_allclose(got.mean[:10], train.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(got.scale[:10], train.std(axis=0), rtol=1e-12)
    assert np.abs(got.train_x[:, :10].mean(axis=0)).max() < 1e-4
    assert np.abs(got.test_x[:, :10].mean(axis=0)).max() > 1e-4
    assert not got.mean[10:].any()
    assert (got.scale[10:] == 1).all()


def test_covertype_columns_are_the_original_ones(loaded: dict[str, Dataset]) -> None:
    got, stored = loaded["covertype"], read_npz(covertype.EMBEDDED)
    both = np.concatenate([got.test_x, got.train_x])
    assert set(np.unique(both[:, 10:])) == {0.0, 1.0}
    assert (both[:, 10:14].sum(axis=1) == 1).all()
    assert (both[:, 14:].sum(axis=1) == 1).all()
    again = covertype.compact(np.rint(both * got.scale + got.mean).astype(np.int64), stored["cover"])
    assert all(np.array_equal(again[key], stored[key]) for key in again)
    labels = np.concatenate([got.test_y, got.train_y])
    assert np.array_equal(labels == 1, stored["cover"] == 2)
    assert abs(labels.mean() - 283_301 / 581_012) < 0.01


def test_covertype_rows_are_disjoint_in_the_sample_and_across_the_full_split() -> None:
    order, rows = covertype.permutation(), read_npz(covertype.EMBEDDED)["row"]
    assert np.array_equal(np.sort(order), np.arange(covertype.ROWS))
    test, train = rows[: covertype.EMBEDDED_TEST], rows[covertype.EMBEDDED_TEST :]
    full_test, full_train = order[: covertype.FULL_TEST], order[covertype.FULL_TEST :]
    assert len(train) == 40_000
    assert len(np.unique(rows)) == 60_000
    assert np.array_equal(test, full_test[:20_000])
    assert np.array_equal(train, full_train[:40_000])
    assert not np.isin(train, full_test).any()
    assert not np.isin(test, full_train).any()


def test_mnist_is_balanced_disjoint_and_from_the_canonical_sets(loaded: dict[str, Dataset]) -> None:
    got, stored = loaded["mnist"], read_npz(mnist.EMBEDDED)
    assert np.bincount(got.train_y).tolist() == [1500] * 9
    assert np.bincount(got.test_y).tolist() == [500] * 9
    train = {image.tobytes() for image in stored["train_images"]}
    test = {image.tobytes() for image in stored["test_images"]}
    assert len(train) == 13_500
    assert len(test) == 4_500
    assert not train & test
    assert stored["train_row"].max() < 60_000 <= stored["test_row"].min()
    assert got.train_x.min() == 0.0
    assert got.train_x.max() == 1.0
    np.testing.assert_array_equal(got.train_x, (stored["train_images"] / 255.0).astype(np.float32))


def test_permutation_does_not_change() -> None:
    assert covertype.permutation()[:5].tolist() == [343991, 560838, 355499, 226916, 62724]


def test_small_sets_are_scaled(loaded: dict[str, Dataset]) -> None:
    assert loaded["digits"].train_x.max() == 1.0
    assert np.bincount(loaded["digits"].test_y).min() >= 43
    for name in ("diabetes", "breast_cancer"):
        got = loaded[name]
        np.testing.assert_allclose(got.train_x.mean(axis=0), 0, atol=1e-5)
        np.testing.assert_allclose(got.train_x.std(axis=0), 1, atol=1e-5)
        assert np.abs(got.test_x.mean(axis=0)).max() > 1e-3
    diabetes = loaded["diabetes"]
    assert abs(diabetes.train_y.mean()) < 1e-5
    raw = diabetes.test_y * diabetes.target_scale + diabetes.target_mean
    assert 20 < raw.min() < raw.max() < 400


@pytest.mark.parametrize("name", ["digits", "diabetes", "breast_cancer"])
def test_small_sets_split_without_overlap(name: str, loaded: dict[str, Dataset]) -> None:
    got = loaded[name]
    train = {row.tobytes() for row in got.train_x}
    assert not train & {row.tobytes() for row in got.test_x}


def test_unknown_name_lists_and_suggests() -> None:
    with pytest.raises(InputError, match=r"covertype, covertype-full, mnist.*got 'covtype'; did you mean 'covertype'"):
        data.load("covtype")
    with pytest.raises(InputError, match=r'data.name = "file" and data.path = "my.csv"'):
        data.load("my.csv")


def test_file_options_only_go_with_files() -> None:
    with pytest.raises(InputError, match=r"data.target only with"):
        data.load("covertype", target="y")
    with pytest.raises(InputError, match=r"data.test_fraction only with"):
        data.load("digits", test_fraction=0.5)
    with pytest.raises(InputError, match=r"expected data.path"):
        data.load("file", path="")


def test_package_imports_neither_jax_nor_sklearn() -> None:
    probe = (
        "import sys, types; root = types.ModuleType('fedstein'); root.__path__ = [sys.argv[1]];"
        "sys.modules['fedstein'] = root; import fedstein.data;"
        "sys.exit(int('jax' in sys.modules or 'sklearn' in sys.modules))"
    )
    package = Path(data.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", probe, str(package)], check=False).returncode == 0
