"""Data sets that are bundled with scikit-learn, so that they need no download."""

import importlib.util
import pathlib

import numpy as np

from fedpact.datasets.encodings import standardised
from fedpact.federation.table import Table


def breast_cancer() -> Table:
    """Breast Cancer Wisconsin (Diagnostic): is a tumour malignant? 569 rows.

    - `x` (569, 30): measurements of cell nuclei, each with mean 0 and population standard deviation 1.
    - `y` (569,): 1 = malignant (212), 0 = benign (357); scikit-learn has them the other way round.

    Returns an `fp.Table`. Raises ImportError where scikit-learn is not installed.

    Breast Cancer Wisconsin (Diagnostic), Wolberg, Mangasarian and Street, UCI, doi:10.24432/C5DW2B, CC BY 4.0; the
    copy in scikit-learn.
    """
    rows = _rows("breast_cancer.csv", "load_breast_cancer", header=1)
    return Table(x=standardised(rows[:, :-1]), y=1 - rows[:, -1].astype(int))


def digits() -> Table:
    """Handwritten digits in 8x8 pixels: 1,797 rows in 10 classes.

    - `x` (1797, 64): the pixels, row by row, in [0, 1].
    - `y` (1797,): the digit, 0 to 9.

    Returns an `fp.Table`. Raises ImportError where scikit-learn is not installed.

    Optical Recognition of Handwritten Digits (its test part), Alpaydin and Kaynak, UCI, doi:10.24432/C50P49,
    CC BY 4.0; the copy in scikit-learn.
    """
    rows = _rows("digits.csv.gz", "load_digits")
    return Table(x=rows[:, :-1] / 16, y=rows[:, -1].astype(int))


def _rows(file: str, loader: str, header: int = 0) -> np.ndarray:
    """The numbers of a bundled file, label last; by scikit-learn's `loader`, slow to import, only where the file is missing."""
    path = _folder() / file
    if path.is_file():
        return np.loadtxt(path, delimiter=",", skiprows=header)
    import sklearn.datasets

    return np.column_stack(getattr(sklearn.datasets, loader)(return_X_y=True))


def _folder() -> pathlib.Path:
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise ImportError(
            "this data set is bundled with scikit-learn, which is not installed: pip install scikit-learn"
        )
    return pathlib.Path(next(iter(package.submodule_search_locations)), "datasets", "data")
