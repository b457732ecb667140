"""The UCI data sets of He, Peng and Sun (2024), Federated Learning with Convex Global and Local Constraints."""

from fedpact.datasets import encodings, uci
from fedpact.datasets.store import Folder, load
from fedpact.federation.table import Table


def breast_cancer_wisc(folder: Folder = None) -> Table:
    """Breast Cancer Wisconsin (Original): is a tumour malignant? 699 rows graded by a pathologist.

    - `folder`: contains `breast-cancer-wisc.npz` (default: the environment variable FEDPACT_DATA, then the cache folder, then a
      download from UCI).

    Returns an `fp.Table`:

    - `x` (699, 20): 8 grades, standardised (population standard deviation); 11 indicators of bare_nuclei, 1 to 10 and unknown; a
      column of ones.
    - `y` (699,): 1 = malignant (241), 0 = benign (458).

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    Breast Cancer Wisconsin (Original), Wolberg, UCI, doi:10.24432/C5HP4Z, CC BY 4.0.
    """
    arrays = load("breast-cancer-wisc", ("X", "y"), uci.WISC, encodings.breast_cancer_wisc, folder)
    return Table(x=arrays["X"], y=arrays["y"].astype(int))


def monks_1(folder: Folder = None) -> Table:
    """The first MONK's problem: 124 training rows, then all 432 combinations of its attributes.

    - `folder`: contains `monks-1.npz` (default: the environment variable FEDPACT_DATA, then the cache folder, then a
      download from UCI).

    Returns an `fp.Table`:

    - `x` (556, 17): indicators of six attributes with 3, 3, 2, 3, 4 and 2 values, which span the constant; no column of ones.
    - `y` (556,): 1 if a1 = a2 or a5 = 1 (278), else 0 (278).

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    MONK's Problems, Thrun and others, UCI, CC BY 4.0.
    """
    arrays = load("monks-1", ("X", "y"), uci.MONKS, encodings.monks_1, folder)
    return Table(x=arrays["X"], y=arrays["y"].astype(int))


def adult_a(folder: Folder = None) -> Table:
    """Adult (census income) in 21 features: does a person earn more than 50,000 dollars a year? The 32,561 training rows.

    - `folder`: contains `adult-a.npz` (default: the environment variable FEDPACT_DATA, then the cache folder, then a
      download from UCI).

    Returns an `fp.Table`:

    - `x` (32561, 21): 6 numbers, standardised (population standard deviation); indicators of 6 relationships and 5 races; male,
      born in the United States, private sector; a column of ones. The paper does not list its 21 columns, so these may differ.
    - `y` (32561,): 1 = more than 50,000 (7,841), 0 = not (24,720).

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    Adult, Becker and Kohavi, UCI, doi:10.24432/C5XW20, CC BY 4.0.
    """
    arrays = load("adult-a", ("X", "y"), uci.ADULT, encodings.adult_a, folder)
    return Table(x=arrays["X"], y=arrays["y"].astype(int))


def adult_b(folder: Folder = None) -> tuple[Table, Table]:
    """Adult (census income) in 38 features with sex as the protected group, split into rows of the clients and of the server.

    - `folder`: contains `adult-b.npz` (default: the environment variable FEDPACT_DATA, then the cache folder, then a
      download from UCI).

    Returns two tables (clients, server) of 22,654 and 5,659 of the 45,222 rows without missing values, as in the paper:

    - `x` (rows, 38): age, fnlwgt, education-num and hours-per-week, standardised over all 45,222 rows (population standard
      deviation); 0/1 columns for not married, capital gain, capital loss, born abroad; indicators of 6 relationships, 5 races,
      4 kinds of employer and 14 occupations; sex last. There is no column of ones.
    - `y` (rows,): 1 = at most 50,000 dollars a year, 0 = more.
    - `sex` (rows,): 1 = male, 0 = female; also the last feature of x.

    The paper does not state which rows it drew. `adult-b.npz` has a selection of its own (`train_idx`, `server_idx`); a download
    draws another of the same sizes with `default_rng(0)`, so results on the two differ slightly.

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    Adult, Becker and Kohavi, UCI, doi:10.24432/C5XW20, CC BY 4.0.
    """
    wanted = ("X", "y", "sensitive", "train_idx", "server_idx")
    arrays = load("adult-b", wanted, uci.ADULT, encodings.adult_b, folder)
    everyone = Table(x=arrays["X"], y=arrays["y"].astype(int), sex=arrays["sensitive"].astype(int))
    return everyone.take(arrays["train_idx"]), everyone.take(arrays["server_idx"])
