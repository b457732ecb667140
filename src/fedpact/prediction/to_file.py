"""A model's answers to the rows of a file, as CSV."""

import csv
import io
import pathlib
from collections.abc import Sequence

import numpy as np

from fedpact.federation.frames import columns_of, read_column
from fedpact.federation.table import read_frame
from fedpact.prediction.predictor import Predictor


def answers(predictor: Predictor, rows: str | pathlib.Path, party: str | None = None, keep: Sequence[str] = ()) -> str:
    """One line for each row of a file: kept columns, score or scores, label, and probabilities where the loss gives them.

    - `rows`: a .csv, .csv.gz, .parquet or .pq file. `party`: as in `Predictor.scores`. `keep`: columns to be copied.

    Raises ImportError without pandas, and ValueError where rows and model do not fit, with the column.
    """
    frame = read_frame(rows)
    columns = columns_of(frame)
    copied = {}
    for name in keep:
        kept = read_column(columns, name)
        copied[name] = np.where(kept.missing, "", kept.values.astype(str))
    out = {}
    scores = predictor.scores(frame, party)
    labels = predictor.labels if len(predictor.labels) == (2 if scores.ndim == 1 else scores.shape[-1]) else ()
    if scores.ndim == 1:
        out["score"] = scores
    else:
        names = labels or range(scores.shape[1])
        out |= {f"score of {name}": column for name, column in zip(names, scores.T, strict=True)}
    if predictor.rule is not None:
        out["label"] = predictor.decide(scores)
        if predictor.rule.probabilities is not None:
            chances = predictor.chances(scores)
            names = labels or range(chances.shape[1])
            out |= {f"probability of {name}": column for name, column in zip(names, chances.T, strict=True)}
    taken = [name for name in copied if name in out]
    if taken:
        raise ValueError(
            f"the column {taken[0]!r} cannot be kept: the answers have one of that name; rename it in the file"
        )
    out = copied | out
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(out)
    writer.writerows(zip(*(column.tolist() for column in out.values()), strict=True))
    return text.getvalue()
