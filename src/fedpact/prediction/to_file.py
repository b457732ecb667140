"""A model's answers to the rows of a file, as CSV."""

import csv
import io
import pathlib
from collections.abc import Sequence

import numpy as np

from fedpact.federation.frame_files import read_frame
from fedpact.federation.frames import columns_of, read_column
from fedpact.prediction.predictor import Predictor
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.encoders import CategoryEncoder


def answers(predictor: Predictor, rows: str | pathlib.Path, party: str | None = None, keep: Sequence[str] = ()) -> str:
    """One line for each row of a file: kept columns, score or scores, label, and probabilities where the loss gives them.

    - `rows`: a .csv, .csv.gz, .parquet or .pq file. `party`: as in `Predictor.scores`. `keep`: columns to be copied, as they are
      written: codes keep their leading zeros.

    Raises ImportError without pandas, and ValueError where rows and model do not fit, with the column.
    """
    frame = read_frame(rows, dtype=dict.fromkeys(_codes(predictor.recipe), "str"))
    columns = columns_of(frame)
    for name in keep:
        read_column(columns, name)  # which raises where it is not there
    written = columns_of(read_frame(rows, list(keep), dtype="str")) if keep else {}
    copied: dict[str, np.ndarray] = {}
    for name in keep:
        kept = read_column(written, name)
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


def _codes(recipe: AgreedRecipe | None) -> list[str]:
    """Columns that the recipe knows as strings: codes such as 007 are not to be read as numbers."""
    categories = (
        encoder for encoder in (() if recipe is None else recipe.encoders) if isinstance(encoder, CategoryEncoder)
    )
    return [
        each.column for each in categories if any(isinstance(tag, str) for tag in (*each.categories, *each.together))
    ]
