"""Data that come with scikit-learn, so they need no internet."""

import importlib.util
import pathlib

import numpy as np

from fedpact.datasets.encodings import standardised
from fedpact.federation.table import Table


def breast_cancer() -> Table:
    """Is the tumour malignant? 569 cell samples.

    x (569, 30): measurements of the cell nuclei, each standardised (population standard deviation).
    y (569,): 1 = malignant (212), 0 = benign (357). scikit-learn codes it the other way round.

    Breast Cancer Wisconsin (Diagnostic), Wolberg, Mangasarian and Street, UCI, doi:10.24432/C5DW2B, CC BY 4.0; the
    copy in scikit-learn.
    """
    rows = _rows("breast_cancer.csv", "load_breast_cancer", header=1)
    return Table(x=standardised(rows[:, :-1]), y=1 - rows[:, -1].astype(int))


def digits() -> Table:
    """Which digit is it? 1,797 handwritten ones.

    x (1797, 64): the 8x8 pixels, row by row, in [0, 1].
    y (1797,): the digit, 0 to 9.

    Optical Recognition of Handwritten Digits (its test part), Alpaydin and Kaynak, UCI, doi:10.24432/C50P49,
    CC BY 4.0; the copy in scikit-learn.
    """
    rows = _rows("digits.csv.gz", "load_digits")
    return Table(x=rows[:, :-1] / 16, y=rows[:, -1].astype(int))


def _rows(file: str, loader: str, header: int = 0) -> np.ndarray:
    """The numbers of a bundled file, label last. `loader` has them too, but importing it takes seconds."""
    path = _folder() / file
    if path.is_file():
        return np.loadtxt(path, delimiter=",", skiprows=header)
    import sklearn.datasets

    return np.column_stack(getattr(sklearn.datasets, loader)(return_X_y=True))


def _folder() -> pathlib.Path:
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise ImportError("this data set comes with scikit-learn, which is not installed: pip install scikit-learn")
    return pathlib.Path(next(iter(found.submodule_search_locations)), "datasets", "data")
