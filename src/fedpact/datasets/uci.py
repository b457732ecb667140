"""The public files in the UCI repository: their addresses, and how they are read and checked."""

import dataclasses
import io
import zipfile
from collections.abc import Mapping

import numpy as np

STATIC = "https://archive.ics.uci.edu/static/public"


@dataclasses.dataclass(frozen=True)
class Archive:
    """A zip of files without headers.

    - `parts`: for each value of the column `split`, its file and number of rows.
    - `columns`: their names, in order.
    - `separator`: between the entries of a line; None for white space.
    - `label`: the column of classes, and `classes` the number of rows of each. (For Crime the folds: its label is a number.)
    """

    url: str
    parts: Mapping[str, tuple[str, int]]
    columns: tuple[str, ...]
    separator: str | None
    label: str
    classes: Mapping[str, int]

    def read(self, body: bytes) -> dict[str, np.ndarray]:
        """The columns as strings (rows,), the parts concatenated, with the column `split`."""
        with zipfile.ZipFile(io.BytesIO(body)) as files:
            rows = [(*row, split) for split in self.parts for row in self._rows(files, split)]
        names = (*self.columns, "split")
        raw = {name: np.array([row[j] for row in rows]) for j, name in enumerate(names)}
        raw[self.label] = np.strings.rstrip(raw[self.label], ".")
        values, counts = np.unique(raw[self.label], return_counts=True)
        actual = dict(zip(values.tolist(), counts.tolist(), strict=True))
        if actual != self.classes:
            raise ValueError(f"the classes in column {self.label!r} are {actual}, not {dict(self.classes)}")
        return raw

    def _rows(self, files: zipfile.ZipFile, split: str) -> list[list[str]]:
        name, count = self.parts[split]
        if name not in files.namelist():
            raise ValueError(f"the archive has no file {name}; it has {', '.join(files.namelist())}")
        lines = files.read(name).decode("utf-8").splitlines()
        data = [line for line in lines if line.strip() and not line.startswith("|")]
        rows = [[entry.strip() for entry in line.split(self.separator)] for line in data]
        if len(rows) != count or any(len(row) != len(self.columns) for row in rows):
            raise ValueError(
                f"{name} is not the table of {count} rows and {len(self.columns)} columns that was expected"
            )
        return rows


WISC = Archive(
    url=f"{STATIC}/15/breast+cancer+wisconsin+original.zip",
    parts={"all": ("breast-cancer-wisconsin.data", 699)},
    columns=(
        "sample_id",
        "clump_thickness",
        "cell_size_uniformity",
        "cell_shape_uniformity",
        "marginal_adhesion",
        "single_epithelial_cell_size",
        "bare_nuclei",
        "bland_chromatin",
        "normal_nucleoli",
        "mitoses",
        "class",
    ),
    separator=",",
    label="class",
    classes={"2": 458, "4": 241},
)

MONKS = Archive(
    url=f"{STATIC}/70/monk+s+problems.zip",
    parts={"train": ("monks-1.train", 124), "test": ("monks-1.test", 432)},
    columns=("class", "a1", "a2", "a3", "a4", "a5", "a6", "id"),
    separator=None,
    label="class",
    classes={"0": 278, "1": 278},
)

ADULT = Archive(
    url=f"{STATIC}/2/adult.zip",
    parts={"train": ("adult.data", 32_561), "test": ("adult.test", 16_281)},
    columns=(
        "age",
        "workclass",
        "fnlwgt",
        "education",
        "education-num",
        "marital-status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
        "native-country",
        "income",
    ),
    separator=",",
    label="income",
    classes={"<=50K": 37_155, ">50K": 11_687},
)

CRIME_COLUMNS = """
state county community communityname fold population householdsize racepctblack racePctWhite
racePctAsian racePctHisp agePct12t21 agePct12t29 agePct16t24 agePct65up numbUrban pctUrban medIncome
pctWWage pctWFarmSelf pctWInvInc pctWSocSec pctWPubAsst pctWRetire medFamInc perCapInc whitePerCap
blackPerCap indianPerCap AsianPerCap OtherPerCap HispPerCap NumUnderPov PctPopUnderPov PctLess9thGrade
PctNotHSGrad PctBSorMore PctUnemployed PctEmploy PctEmplManu PctEmplProfServ PctOccupManu
PctOccupMgmtProf MalePctDivorce MalePctNevMarr FemalePctDiv TotalPctDiv PersPerFam PctFam2Par
PctKids2Par PctYoungKids2Par PctTeen2Par PctWorkMomYoungKids PctWorkMom NumIlleg PctIlleg NumImmig
PctImmigRecent PctImmigRec5 PctImmigRec8 PctImmigRec10 PctRecentImmig PctRecImmig5 PctRecImmig8
PctRecImmig10 PctSpeakEnglOnly PctNotSpeakEnglWell PctLargHouseFam PctLargHouseOccup PersPerOccupHous
PersPerOwnOccHous PersPerRentOccHous PctPersOwnOccup PctPersDenseHous PctHousLess3BR MedNumBR HousVacant
PctHousOccup PctHousOwnOcc PctVacantBoarded PctVacMore6Mos MedYrHousBuilt PctHousNoPhone PctWOFullPlumb
OwnOccLowQuart OwnOccMedVal OwnOccHiQuart RentLowQ RentMedian RentHighQ MedRent MedRentPctHousInc
MedOwnCostPctInc MedOwnCostPctIncNoMtg NumInShelters NumStreet PctForeignBorn PctBornSameState
PctSameHouse85 PctSameCity85 PctSameState85 LemasSwornFT LemasSwFTPerPop LemasSwFTFieldOps
LemasSwFTFieldPerPop LemasTotalReq LemasTotReqPerPop PolicReqPerOffic PolicPerPop RacialMatchCommPol
PctPolicWhite PctPolicBlack PctPolicHisp PctPolicAsian PctPolicMinor OfficAssgnDrugUnits
NumKindsDrugsSeiz PolicAveOTWorked LandArea PopDens PctUsePubTrans PolicCars PolicOperBudg
LemasPctPolicOnPatr LemasGangUnitDeploy LemasPctOfficDrugUn PolicBudgPerPop ViolentCrimesPerPop
"""

CRIME = Archive(
    url=f"{STATIC}/183/communities+and+crime.zip",
    parts={"all": ("communities.data", 1_994)},
    columns=tuple(CRIME_COLUMNS.split()),
    separator=",",
    label="fold",
    classes={str(fold): 200 if fold <= 4 else 199 for fold in range(1, 11)},
)
