"""The UCI data sets of He, Peng and Sun's experiments."""

from fedpact.datasets import encodings, uci
from fedpact.datasets.store import Folder, load
from fedpact.federation.table import Table


def breast_cancer_wisc(folder: Folder = None) -> Table:
    """Is the tumour malignant? 699 samples graded by a pathologist.

    x (699, 20): 8 grades, standardised (population standard deviation); 11 dummies of bare_nuclei, 1 to 10 and
    unknown; a column of ones.
    y (699,): 1 = malignant (241), 0 = benign (458).

    folder: has `breast-cancer-wisc.npz`; default FEDPACT_DATA, then the cache folder, then a download from UCI.
    Breast Cancer Wisconsin (Original), Wolberg, UCI, doi:10.24432/C5HP4Z, CC BY 4.0.
    """
    arrays = load("breast-cancer-wisc", ("X", "y"), uci.WISC, encodings.breast_cancer_wisc, folder)
    return Table(x=arrays["X"], y=arrays["y"].astype(int))


def monks_1(folder: Folder = None) -> Table:
    """The first MONK's problem: 124 training rows, then the 432 possible robots.

    x (556, 17): dummies of six attributes with 3, 3, 2, 3, 4 and 2 values. They span the constant: no column of ones.
    y (556,): 1 if a1 = a2 or a5 = 1 (278), else 0 (278).

    folder: has `monks-1.npz`; default FEDPACT_DATA, then the cache folder, then a download from UCI.
    MONK's Problems, Thrun and others, UCI, CC BY 4.0.
    """
    arrays = load("monks-1", ("X", "y"), uci.MONKS, encodings.monks_1, folder)
    return Table(x=arrays["X"], y=arrays["y"].astype(int))


def adult_a(folder: Folder = None) -> Table:
    """Does a person earn more than 50,000 dollars a year? The 32,561 training rows of the census.

    x (32561, 21): 6 numbers, standardised (population standard deviation); dummies of 6 relationships and 5 races;
    male, born in the United States, private sector; a column of ones. The paper does not list its 21 columns.
    y (32561,): 1 = more than 50,000 (7,841), 0 = not (24,720).

    folder: has `adult-a.npz`; default FEDPACT_DATA, then the cache folder, then a download from UCI.
    Adult, Becker and Kohavi, UCI, doi:10.24432/C5XW20, CC BY 4.0.
    """
    arrays = load("adult-a", ("X", "y"), uci.ADULT, encodings.adult_a, folder)
    return Table(x=arrays["X"], y=arrays["y"].astype(int))


def adult_b(folder: Folder = None) -> tuple[Table, Table]:
    """Does a person earn at most 50,000 dollars a year, and is the answer fair to both sexes? (clients, server).

    The clients have 22,654 and the server 5,659 of the 45,222 complete rows of the census, as in the paper.
    x (·, 38): age, fnlwgt, education-num and hours-per-week standardised over the complete rows (population standard
    deviation); 0/1 columns for not married, capital gain, capital loss, born abroad; dummies of 6 relationships,
    5 races, 4 kinds of employer and 14 occupations; sex last. There is no column of ones.
    y: 1 = at most 50,000, 0 = more.
    sex: 1 = male, 0 = female; the last column of x.

    Which rows the paper drew is not known. `adult-b.npz` has its own choice (`train_idx`, `server_idx`); a download
    draws another of the same sizes with `default_rng(0)`, so numbers from the two differ slightly.

    folder: has `adult-b.npz`; default FEDPACT_DATA, then the cache folder, then a download from UCI.
    Adult, Becker and Kohavi, UCI, doi:10.24432/C5XW20, CC BY 4.0.
    """
    wanted = ("X", "y", "sensitive", "train_idx", "server_idx")
    arrays = load("adult-b", wanted, uci.ADULT, encodings.adult_b, folder)
    everyone = Table(x=arrays["X"], y=arrays["y"].astype(int), sex=arrays["sensitive"].astype(int))
    return everyone.take(arrays["train_idx"]), everyone.take(arrays["server_idx"])
