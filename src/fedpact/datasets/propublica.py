"""ProPublica's file of COMPAS scores: where it is, and how it is read and checked.

Its repository states no licence, so nothing of it comes with fedpact: it is downloaded where the user has internet. The file
has names and dates of birth; what is kept in the cache is the encoded table, without them.
"""

import csv
import dataclasses
import io
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class CsvFile:
    """A table with a header. Of columns with one name the first counts; `label`, `classes`: how many rows each class has."""

    url: str
    label: str
    classes: Mapping[str, int]

    def read(self, body: bytes) -> dict[str, np.ndarray]:
        """Columns of text (rows,)."""
        header, *rows = list(csv.reader(io.StringIO(body.decode("utf-8"), newline=""))) or [[]]
        if self.label not in header or any(len(row) != len(header) for row in rows):
            raise ValueError(f"the file is not the table with the column {self.label!r} that it was")
        raw = {name: np.array([row[header.index(name)] for row in rows]) for name in dict.fromkeys(header)}
        values, counts = np.unique(raw[self.label], return_counts=True)
        found = dict(zip(values.tolist(), counts.tolist(), strict=True))
        if found != self.classes:
            raise ValueError(f"the classes in column {self.label!r} are {found}, not {dict(self.classes)}")
        return raw


COMPAS = CsvFile(
    url="https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",
    label="two_year_recid",
    classes={"0": 3_963, "1": 3_251},
)
