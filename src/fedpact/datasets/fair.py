"""The data sets of fair vertical learning: labels y in {-1, 1}, two groups in {0, 1}.

How the paper (Liu and others, arXiv:2109.08344) scaled its columns is not known. Here numbers are standardised over all rows
(population standard deviation) and 0/1 columns are left, so that the dummies go on adding up to a constant and a linear model
needs no intercept; Crime has no dummies and comes in [0, 1] already, so it stays as it is.
"""

import numpy as np

from fedpact.datasets import encodings, uci
from fedpact.datasets.propublica import COMPAS
from fedpact.datasets.store import Folder, load
from fedpact.federation.table import Table


def adult(folder: Folder = None) -> Table:
    """Does a person earn more than 50,000 dollars a year? The 45,222 complete rows of the census, train and test together.

    x (45222, 104): age, fnlwgt, education-num, capital-gain, capital-loss and hours-per-week, standardised (population standard
    deviation); then dummies: workclass 7, education 16, marital-status 7, occupation 14, relationship 6, race 5, sex 2 (places
    61 and 62), native-country 41.
    y: 1 = more than 50,000 (11,208), -1 = not (34,014).
    group: 1 = male (30,527), 0 = female (14,695).

    folder: has `adult.npz`; default FEDPACT_DATA, then the cache folder, then a download from UCI.
    Adult, Becker and Kohavi, UCI, doi:10.24432/C5XW20, CC BY 4.0.
    """
    arrays = load("adult", ("X_num", "X_cat", "y", "sensitive"), uci.ADULT, encodings.adult, folder)
    x = np.concatenate([encodings.standardised(arrays["X_num"]), arrays["X_cat"].astype(float)], axis=1)
    return _table(x, arrays)


def compas(folder: Folder = None) -> Table:
    """Is a defendant charged with no further crime within two years? 5,278 of Broward County, Florida, 2013 and 2014.

    x (5278, 26): male; Caucasian (place 1); age and three dummies of it; three counts of juvenile crimes; prior crimes; two
    dummies of the charge's degree; two COMPAS scores and three dummies of each; days from arrest to screening; days in jail;
    three dummies of prior crimes; any juvenile crime. Numbers are standardised (population standard deviation), the paper does
    not list its 26 columns.
    y: 1 = not a recidivist (2,795), -1 = recidivist (2,483).
    group: 1 = Caucasian (2,103), 0 = African-American (3,175).

    folder: has `compas.npz`; default FEDPACT_DATA, then the cache folder, then a download from ProPublica's repository, which
    states no licence.
    J. Angwin, J. Larson, S. Mattu and L. Kirchner, Machine bias, ProPublica, 23 May 2016; data:
    github.com/propublica/compas-analysis.
    """
    arrays = load("compas", ("X", "y", "sensitive"), COMPAS, encodings.compas, folder)
    x = arrays["X"]
    numbers = ~np.isin(x, (0, 1)).all(axis=0)
    return _table(np.where(numbers, encodings.standardised(x), x), arrays)


def crime(folder: Folder = None) -> Table:
    """Has a community much violent crime? 1,994 of the United States, about 1990.

    x (1994, 99): the predictors that no community lacks, in [0, 1] as published, racepctblack (place 2) among them.
    y: 1 = ViolentCrimesPerPop of 0.375 or more (413), -1 = less (1,581). The paper protects the negative class.
    group: 1 = racepctblack above 0.06 (970), 0 = not (1,024).

    folder: has `crime.npz`; default FEDPACT_DATA, then the cache folder, then a download from UCI.
    Communities and Crime, Redmond, UCI, doi:10.24432/C53W3X, CC BY 4.0.
    """
    arrays = load("crime", ("X", "y", "sensitive"), uci.CRIME, encodings.crime, folder)
    return _table(arrays["X"], arrays)


def _table(x: np.ndarray, arrays: encodings.Arrays) -> Table:
    return Table(x=x, y=arrays["y"].astype(int), group=arrays["sensitive"].astype(int))
