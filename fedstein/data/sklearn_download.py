"""A script that downloads a dataset with scikit-learn and writes its arrays to a folder.

It runs in a process of its own, because scikit-learn's downloads retry and wait without a limit if there is no network.
Usage: sklearn_download.py covertype-full|mnist-full|fashion FOLDER
"""

from __future__ import annotations

import importlib.util
import socket
import sys
import warnings
from pathlib import Path

import numpy as np

NETWORK_SECONDS = 15


def main(name: str, folder: Path) -> None:
    """Write features.npy and targets.npy to the folder."""
    warnings.simplefilter("ignore")
    socket.setdefaulttimeout(NETWORK_SECONDS)
    from sklearn.datasets import fetch_covtype, fetch_openml

    home = str(folder / "scikit-learn")
    if name == "covertype-full":
        features, targets = fetch_covtype(data_home=home, n_retries=1, return_X_y=True)
        features = features.astype(np.int16)
    else:
        features, targets = fetch_openml(
            "Fashion-MNIST" if name == "fashion" else "mnist_784",
            version=1,
            data_home=home,
            n_retries=1,
            as_frame=False,
            return_X_y=True,
            parser="pandas" if importlib.util.find_spec("pandas") else "liac-arff",
        )
        features = features.astype(np.uint8)
    np.save(folder / "features.npy", features)
    np.save(folder / "targets.npy", targets.astype(np.uint8))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
