"""From the columns of the public files to numbers.

An encoding takes raw columns, text as in the source, and gives the arrays that are kept: `X` (rows, features) float64,
`y` (rows,) int8, `feature_names` (features,), and what else a data set has.
"""

from collections.abc import Iterable, Mapping

import numpy as np

Raw = Mapping[str, np.ndarray]
Arrays = dict[str, np.ndarray]
Features = dict[str, np.ndarray]

BIAS = "bias"

WISC_GRADES = (
    "clump_thickness",
    "cell_size_uniformity",
    "cell_shape_uniformity",
    "marginal_adhesion",
    "single_epithelial_cell_size",
    "bland_chromatin",
    "normal_nucleoli",
    "mitoses",
)
BARE_NUCLEI = (*map(str, range(1, 11)), "?")

MONK_VALUES = {"a1": 3, "a2": 3, "a3": 2, "a4": 3, "a5": 4, "a6": 2}

ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
RELATIONSHIPS = ("Husband", "Not-in-family", "Other-relative", "Own-child", "Unmarried", "Wife")
RACES = ("Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other", "White")

# The numbering of adult-b: the place of a value, or of a group of values, is its code.
MARRIED = ("Married-civ-spouse", "Married-AF-spouse")
RELATIONSHIP_CODES = ("Unmarried", "Wife", "Husband", "Not-in-family", "Own-child", "Other-relative")
RACE_CODES = ("White", "Amer-Indian-Eskimo", "Asian-Pac-Islander", "Black", "Other")
WORKCLASS_CODES = (
    ("Federal-gov", "Local-gov", "State-gov"),
    ("Private",),
    ("Self-emp-inc", "Self-emp-not-inc"),
    ("Without-pay",),
)
OCCUPATION_CODES = (
    "Adm-clerical",
    "Exec-managerial",
    "Handlers-cleaners",
    "Prof-specialty",
    "Other-service",
    "Sales",
    "Transport-moving",
    "Farming-fishing",
    "Machine-op-inspct",
    "Tech-support",
    "Craft-repair",
    "Protective-serv",
    "Armed-Forces",
    "Priv-house-serv",
)
ADULT_B_CLIENT_ROWS, ADULT_B_SERVER_ROWS = 22_654, 5_659


def breast_cancer_wisc(raw: Raw) -> Arrays:
    """8 standardised grades, 11 dummies of bare_nuclei (`?` is one of them), bias; y = 1 malignant."""
    features = {name: standardised(raw[name]) for name in WISC_GRADES}
    features |= _dummies(raw, "bare_nuclei", {f"bare_nuclei={v}": (v,) for v in BARE_NUCLEI})
    return _arrays(features, raw["class"] == "4", bias=True)


def monks_1(raw: Raw) -> Arrays:
    """17 dummies of 6 attributes, which add up to a bias already; y = the class."""
    features: Features = {}
    for name, count in MONK_VALUES.items():
        features |= _dummies(raw, name, {f"{name}_{v}": (str(v),) for v in range(1, count + 1)})
    return _arrays(features, raw["class"] == "1")


def adult_a(raw: Raw) -> Arrays:
    """The train rows: 6 standardised numbers, dummies of relationship and race, 3 binaries, bias; y = 1 `>50K`."""
    raw = _only(raw, raw["split"] == "train")
    features = {name: standardised(raw[name]) for name in ADULT_NUMBERS}
    features |= _dummies(raw, "relationship", {f"relationship={v}": (v,) for v in RELATIONSHIPS})
    features |= _dummies(raw, "race", {f"race={v}": (v,) for v in RACES})
    features["sex=Male"] = raw["sex"] == "Male"
    features["native-country=United-States"] = raw["native-country"] == "United-States"
    features["workclass=Private"] = raw["workclass"] == "Private"
    return _arrays(features, raw["income"] == ">50K", bias=True)


def adult_b(raw: Raw) -> Arrays:
    """The complete rows of both parts in 38 columns, sex last; y = 1 `<=50K`; `sensitive` = 1 male.

    `train_idx` and `server_idx`, the rows of the clients and of the server, are drawn with `default_rng(0)`.
    """
    raw = _only(raw, np.logical_and.reduce([column != "?" for column in raw.values()]))
    male = raw["sex"] == "Male"
    features = {
        "age": standardised(raw["age"]),
        "fnlwgt": standardised(raw["fnlwgt"]),
        "education-num": standardised(raw["education-num"]),
        "marital-status": ~np.isin(raw["marital-status"], MARRIED),
        "capital-gain": raw["capital-gain"].astype(float) > 0,
        "capital-loss": raw["capital-loss"].astype(float) > 0,
        "hours-per-week": standardised(raw["hours-per-week"]),
        "native-country": raw["native-country"] != "United-States",
    }
    features |= _coded(raw, "relationship", [(v,) for v in RELATIONSHIP_CODES])
    features |= _coded(raw, "race", [(v,) for v in RACE_CODES])
    features |= _coded(raw, "workclass", WORKCLASS_CODES)
    features |= _coded(raw, "occupation", [(v,) for v in OCCUPATION_CODES])
    features["sex"] = male
    order = np.random.default_rng(0).permutation(len(male)).astype(np.int32)
    clients, server, _ = np.split(order, np.cumsum([ADULT_B_CLIENT_ROWS, ADULT_B_SERVER_ROWS]))
    return {
        **_arrays(features, raw["income"] == "<=50K"),
        "sensitive": male.astype(np.int8),
        "train_idx": np.sort(clients),
        "server_idx": np.sort(server),
    }


def standardised(column: np.ndarray) -> np.ndarray:
    """Mean 0 and population standard deviation 1, down the rows."""
    values = column.astype(float)
    return (values - values.mean(axis=0)) / values.std(axis=0)


def _dummies(raw: Raw, column: str, groups: Mapping[str, tuple[str, ...]]) -> Features:
    """One 0/1 feature for each group of values; every row is in one of them."""
    features = {name: np.isin(raw[column], values) for name, values in groups.items()}
    strange = raw[column][~np.logical_or.reduce(list(features.values()))]
    if len(strange):
        known = ", ".join(value for values in groups.values() for value in values)
        raise ValueError(f"column {column!r} has the value {str(strange[0])!r}, which is none of {known}")
    return features


def _coded(raw: Raw, column: str, groups: Iterable[tuple[str, ...]]) -> Features:
    return _dummies(raw, column, {f"{column}_{code}": values for code, values in enumerate(groups)})


def _only(raw: Raw, rows: np.ndarray) -> Raw:
    return {name: column[rows] for name, column in raw.items()}


def _arrays(features: Features, positive: np.ndarray, bias: bool = False) -> Arrays:
    if bias:
        features = {**features, BIAS: np.ones(len(positive))}
    return {
        "X": np.stack([column.astype(float) for column in features.values()], axis=1),
        "y": positive.astype(np.int8),
        "feature_names": np.array(list(features)),
    }
