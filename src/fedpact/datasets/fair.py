"""Data sets for fair vertical federated learning: labels y in {-1, 1}, two groups in {0, 1}.

Liu and others (arXiv:2109.08344) do not state how they scaled the columns. Here numbers are standardised over all rows
(population standard deviation) and 0/1 columns are unchanged, so that indicator columns still add up to a constant and a linear
model needs no intercept; Crime has no indicator columns and is published in [0, 1], so it is unchanged.
"""

import numpy as np

from fedpact.datasets import encodings, uci
from fedpact.datasets.propublica import COMPAS
from fedpact.datasets.store import Folder, load
from fedpact.federation.table import Table


def adult(folder: Folder = None) -> Table:
    """Adult (census income): does a person earn more than 50,000 dollars a year? The 45,222 rows without missing values.

    - `folder`: contains `adult.npz` (default: the environment variable FEDPACT_DATA, then the cache folder, then a
      download from UCI).

    Returns an `fp.Table`, training and test rows together:

    - `x` (45222, 104): age, fnlwgt, education-num, capital-gain, capital-loss and hours-per-week, standardised (population
      standard deviation); then indicators: workclass 7, education 16, marital-status 7, occupation 14, relationship 6, race 5,
      sex 2 (features 61 and 62), native-country 41.
    - `y` (45222,): 1 = more than 50,000 (11,208), -1 = not (34,014).
    - `group` (45222,): 1 = male (30,527), 0 = female (14,695).

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    Adult, Becker and Kohavi, UCI, doi:10.24432/C5XW20, CC BY 4.0.
    """
    arrays = load("adult", ("X_num", "X_cat", "y", "sensitive"), uci.ADULT, encodings.adult, folder)
    x = np.concatenate([encodings.standardised(arrays["X_num"]), arrays["X_cat"].astype(float)], axis=1)
    return _table(x, arrays)


def compas(folder: Folder = None) -> Table:
    """COMPAS: is a defendant charged with no further crime within two years? 5,278 defendants of Broward County, Florida.

    - `folder`: contains `compas.npz` (default: the environment variable FEDPACT_DATA, then the cache folder, then a
      download from ProPublica's repository, which states no licence).

    Returns an `fp.Table`:

    - `x` (5278, 26): male; Caucasian (feature 1); age and three indicators of it; three counts of juvenile crimes; prior crimes;
      two indicators of the charge's degree; two COMPAS scores and three indicators of each; days from arrest to screening; days
      in jail; three indicators of prior crimes; any juvenile crime. Numbers are standardised (population standard deviation).
      Liu and others (arXiv:2109.08344) do not list their 26 columns, so these may differ.
    - `y` (5278,): 1 = not a recidivist (2,795), -1 = recidivist (2,483).
    - `group` (5278,): 1 = Caucasian (2,103), 0 = African-American (3,175).

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    J. Angwin, J. Larson, S. Mattu and L. Kirchner, Machine bias, ProPublica, 23 May 2016; data:
    github.com/propublica/compas-analysis.
    """
    arrays = load("compas", ("X", "y", "sensitive"), COMPAS, encodings.compas, folder)
    x = arrays["X"]
    numbers = ~np.isin(x, (0, 1)).all(axis=0)
    return _table(np.where(numbers, encodings.standardised(x), x), arrays)


def crime(folder: Folder = None) -> Table:
    """Communities and Crime: is the rate of violent crime high? 1,994 communities of the United States, about 1990.

    - `folder`: contains `crime.npz` (default: the environment variable FEDPACT_DATA, then the cache folder, then a
      download from UCI).

    Returns an `fp.Table`:

    - `x` (1994, 99): the predictors without missing values, in [0, 1] as published, racepctblack (feature 2) among them.
    - `y` (1994,): 1 = ViolentCrimesPerPop >= 0.375 (413), -1 = less (1,581). Liu and others (arXiv:2109.08344) protect the
      negative class.
    - `group` (1994,): 1 = racepctblack > 0.06 (970), 0 = not (1,024).

    Raises FileNotFoundError where the data are in no folder and cannot be downloaded.

    Communities and Crime, Redmond, UCI, doi:10.24432/C53W3X, CC BY 4.0.
    """
    arrays = load("crime", ("X", "y", "sensitive"), uci.CRIME, encodings.crime, folder)
    return _table(arrays["X"], arrays)


def _table(x: np.ndarray, arrays: encodings.Arrays) -> Table:
    return Table(x=x, y=arrays["y"].astype(int), group=arrays["sensitive"].astype(int))
