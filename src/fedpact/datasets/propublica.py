"""ProPublica's file of COMPAS scores: its address, and how it is read and checked.

Its repository states no licence, so it is not distributed with fedpact but downloaded by the user. The file has names and dates
of birth; the cache holds the encoded table, without them.
"""

import csv
import dataclasses
import io
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class CsvFile:
    """A CSV file with a header; of columns with equal names the first is read. `classes`: row counts by value of `label`."""

    url: str
    label: str
    classes: Mapping[str, int]

    def read(self, body: bytes) -> dict[str, np.ndarray]:
        """The columns as strings (rows,)."""
        header, *rows = list(csv.reader(io.StringIO(body.decode("utf-8"), newline=""))) or [[]]
        if self.label not in header or any(len(row) != len(header) for row in rows):
            raise ValueError(f"the file is not the table with the column {self.label!r} that was expected")
        raw = {name: np.array([row[header.index(name)] for row in rows]) for name in dict.fromkeys(header)}
        values, counts = np.unique(raw[self.label], return_counts=True)
        actual = dict(zip(values.tolist(), counts.tolist(), strict=True))
        if actual != self.classes:
            raise ValueError(f"the classes in column {self.label!r} are {actual}, not {dict(self.classes)}")
        return raw


COMPAS = CsvFile(
    url="https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",
    label="two_year_recid",
    classes={"0": 3_963, "1": 3_251},
)
