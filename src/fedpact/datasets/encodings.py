"""From the columns of the public files to arrays of numbers.

An encoding takes raw columns of strings and returns the arrays that are saved: `X` (rows, features) float64, `y` (rows,) int8,
`feature_names` (features,), and further ones for some data sets. Those for fair vertical learning are unscaled, with y in {-1, 1}
and `sensitive` (rows,) int8, the group.
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

# The codes of adult-b: a value, or group of values, has its position as code.
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
ADULT_CHOICES = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
)

COMPAS_RACES = ("African-American", "Caucasian")
COMPAS_AGES = ("Less than 25", "25 - 45", "Greater than 45")
COMPAS_LEVELS = ("Low", "Medium", "High")
SCREENED_WITHIN_DAYS = 30  # of the arrest; later, the charge may not be the one that was screened for
ABOUT_THE_PLACE = ("state", "county", "community", "communityname", "fold")  # not predictors
CRIME_LIMIT, BLACK_SHARE_LIMIT = 0.375, 0.06

ADULT_B_CLIENT_ROWS, ADULT_B_SERVER_ROWS = 22_654, 5_659


def breast_cancer_wisc(raw: Raw) -> Arrays:
    """8 standardised grades, 11 indicators of bare_nuclei (`?` is one of them), bias; y = 1 malignant."""
    features = {name: standardised(raw[name]) for name in WISC_GRADES}
    features |= _dummies(raw, "bare_nuclei", {f"bare_nuclei={v}": (v,) for v in BARE_NUCLEI})
    return _arrays(features, raw["class"] == "4", bias=True)


def monks_1(raw: Raw) -> Arrays:
    """17 indicators of 6 attributes, which span the constant; y = the class."""
    features: Features = {}
    for name, count in MONK_VALUES.items():
        features |= _dummies(raw, name, {f"{name}_{v}": (str(v),) for v in range(1, count + 1)})
    return _arrays(features, raw["class"] == "1")


def adult_a(raw: Raw) -> Arrays:
    """The train rows: 6 standardised numbers, indicators of relationship and race, 3 binaries, bias; y = 1 `>50K`."""
    raw = _only(raw, raw["split"] == "train")
    features = {name: standardised(raw[name]) for name in ADULT_NUMBERS}
    features |= _dummies(raw, "relationship", {f"relationship={v}": (v,) for v in RELATIONSHIPS})
    features |= _dummies(raw, "race", {f"race={v}": (v,) for v in RACES})
    features["sex=Male"] = raw["sex"] == "Male"
    features["native-country=United-States"] = raw["native-country"] == "United-States"
    features["workclass=Private"] = raw["workclass"] == "Private"
    return _arrays(features, raw["income"] == ">50K", bias=True)


def adult_b(raw: Raw) -> Arrays:
    """The rows of both parts without missing values in 38 columns, sex last; y = 1 `<=50K`; `sensitive` = 1 male.

    `train_idx` and `server_idx`, the rows of the clients and of the server, are drawn with `default_rng(0)`.
    """
    raw = _complete(raw)
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


def adult(raw: Raw) -> Arrays:
    """The rows of both parts without missing values: 6 numbers `X_num`, 98 indicators `X_cat`; y = 1 `>50K`; `sensitive` = male.

    `split` = 1 for rows of the file adult.test.
    """
    raw = _complete(raw)
    dummies: Features = {}
    for name in ADULT_CHOICES:
        dummies |= {f"{name}_{value}": raw[name] == value for value in np.unique(raw[name]).tolist()}
    return {
        "X_num": np.stack([raw[name].astype(np.int32) for name in ADULT_NUMBERS], axis=1),
        "X_cat": np.stack([column.astype(np.uint8) for column in dummies.values()], axis=1),
        "y": _signed(raw["income"] == ">50K"),
        "sensitive": (raw["sex"] == "Male").astype(np.int8),
        "split": (raw["split"] == "test").astype(np.int8),
        "feature_names": np.array([*ADULT_NUMBERS, *dummies]),
    }


def compas(raw: Raw) -> Arrays:
    """ProPublica's selection of rows, of two races, in 26 columns; y = 1 no crime within two years; `sensitive` = 1 Caucasian.

    Excluded, as by ProPublica: screening more than 30 days from the arrest, no matching case, ordinary traffic offences, no
    score.
    """
    raw = _only(raw, (raw["days_b_screening_arrest"] != "") & np.isin(raw["race"], COMPAS_RACES))
    near = np.abs(raw["days_b_screening_arrest"].astype(float)) <= SCREENED_WITHIN_DAYS
    raw = _only(raw, near & (raw["is_recid"] != "-1") & (raw["c_charge_degree"] != "O") & (raw["score_text"] != "N/A"))
    juvenile = {name: raw[name].astype(float) for name in ("juv_fel_count", "juv_misd_count", "juv_other_count")}
    priors = raw["priors_count"].astype(float)
    jailed, released = (raw[name].astype("datetime64[s]") for name in ("c_jail_in", "c_jail_out"))
    white, good = raw["race"] == "Caucasian", raw["two_year_recid"] == "0"
    features = {"sex=Male": raw["sex"] == "Male", "race=Caucasian": white, "age": raw["age"].astype(float)}
    features |= _dummies(raw, "age_cat", {f"age_cat={v}": (v,) for v in COMPAS_AGES})
    features |= juvenile | {"priors_count": priors}
    features |= _dummies(raw, "c_charge_degree", {f"c_charge_degree={v}": (v,) for v in ("F", "M")})
    features |= {name: raw[name].astype(float) for name in ("decile_score", "v_decile_score")}
    for name in ("score_text", "v_score_text"):
        features |= _dummies(raw, name, {f"{name}={v}": (v,) for v in COMPAS_LEVELS})
    features |= {
        "days_b_screening_arrest": raw["days_b_screening_arrest"].astype(float),
        "length_of_stay_days": (released - jailed) / np.timedelta64(1, "D"),
        "priors=0": priors == 0,
        "priors=1-3": (priors >= 1) & (priors <= 3),
        "priors>3": priors > 3,
        "any_juvenile": np.sum(list(juvenile.values()), axis=0) > 0,
    }
    return {**_arrays(features, good), "y": _signed(good), "sensitive": white.astype(np.int8)}


def crime(raw: Raw) -> Arrays:
    """The 99 predictors without missing values; y = 1 violent crimes per population at least 0.375 (`target`).

    `sensitive` = 1 where racepctblack, one of the predictors, is above 0.06.
    """
    target = raw["ViolentCrimesPerPop"].astype(float)
    violent, black = target >= CRIME_LIMIT, raw["racepctblack"].astype(float) > BLACK_SHARE_LIMIT
    others = (*ABOUT_THE_PLACE, "ViolentCrimesPerPop", "split")
    predictors = [name for name in raw if name not in others and not (raw[name] == "?").any()]
    made = _arrays({name: raw[name].astype(float) for name in predictors}, violent)
    return {**made, "y": _signed(violent), "sensitive": black.astype(np.int8), "target": target}


def standardised(column: np.ndarray) -> np.ndarray:
    """Scaled to mean 0 and population standard deviation 1 over the rows."""
    values = column.astype(float)
    return (values - values.mean(axis=0)) / values.std(axis=0)


def _dummies(raw: Raw, column: str, groups: Mapping[str, tuple[str, ...]]) -> Features:
    """One 0/1 feature for each group of values. Raises ValueError for a value in no group."""
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


def _complete(raw: Raw) -> Raw:
    """The rows without missing values, written as a question mark."""
    return _only(raw, np.logical_and.reduce([column != "?" for column in raw.values()]))


def _signed(positive: np.ndarray) -> np.ndarray:
    return np.where(positive, 1, -1).astype(np.int8)


def _arrays(features: Features, positive: np.ndarray, bias: bool = False) -> Arrays:
    if bias:
        features = {**features, BIAS: np.ones(len(positive))}
    return {
        "X": np.stack([column.astype(float) for column in features.values()], axis=1),
        "y": positive.astype(np.int8),
        "feature_names": np.array(list(features)),
    }
