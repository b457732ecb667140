"""A model in use: scores, labels and probabilities of new rows, with what its run certified."""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from fedpact.federation.frames import columns_of
from fedpact.prediction.forms import Form, OwnForm, SplitForm
from fedpact.prediction.rows import matrix
from fedpact.preparation.agreed import AgreedRecipe
from fedpact.problem.decision_rule import DecisionRule
from fedpact.tolerance import Tolerance

UNFIT = {  # statuses of runs whose models are predicted with under a warning
    "infeasible": "the run found no parameters that meet all constraints",
    "diverged": "the run diverged",
    "stopped": "the run was stopped before its result could be certified",
}


@dataclasses.dataclass(frozen=True)
class Predictor:
    """A trained model apart from its run. Made by `fp.load`; linear models and `fp.mlp` networks predict without JAX.

    - `params`: the parameters by name, as numpy arrays; over columns those of the top model.
    - `features`: the names of the features, in order; None where the tables had none.
    - `recipe`: how raw columns become features (`fp.prepare`); None where the tables were prepared otherwise.
    - `status`, `message`: how the run ended. `certificate`: its numbers, by constraint and holder, as plain text and numbers.
    - `problem`: as text. `digest`: of the problem. `version`: of the fedpact that saved it. `run`: method, rounds and end.
    - `split`: "rows" (one model), "personal" (one for each party, and their average) or "columns" (a part at each party).
    - `parties`: their names. `parts`: the parties' own models or parts, as far as they are here, as predictors by name.
    - `party`: whose own model or part this is; None for what all share.
    """

    form: Form
    params: Mapping[str, np.ndarray]
    rule: DecisionRule | None
    features: tuple[str, ...] | None
    recipe: AgreedRecipe | None
    status: str
    message: str
    certificate: dict[str, Any]
    problem: str
    digest: str
    version: str
    run: dict[str, Any]
    split: Literal["rows", "personal", "columns"] = "rows"
    parties: tuple[str, ...] = ()
    party: str | None = None
    parts: Mapping[str, "Predictor"] = dataclasses.field(default_factory=dict)
    own: Callable[[Mapping[str, Any]], np.ndarray] | None = (
        None  # scores of columns, where the model is the user's code
    )

    @property
    def labels(self) -> tuple[Any, ...]:
        """What `predict` gives, in the order of the columns of `predict_proba`: (negative, positive), or the classes where they
        have labels; () where they have none, and where nothing is decided."""
        return () if self.rule is None else self.rule.classes if self.rule.by_class else self.rule.labels

    @property
    def threshold(self) -> float | None:
        """Of decisions, in units of the score; None where none is used."""
        return None if self.rule is None or self.rule.by_class else self.rule.threshold

    # for new rows

    def scores(self, rows: Any, party: str | None = None) -> np.ndarray:
        """The model's scores on new rows.

        - `rows`: a data frame, a table or a mapping of columns, with the features by name or as the model's matrix column;
          raw columns where there is a recipe; an array (rows, features); over columns the parties' rows by name.
        - `party`: whose own model is meant, where every party has one (default: the average of them).

        Returns an array with one entry (or one line) per row; of a party's part over columns, what that part gives. Warns where
        the run ended "infeasible", "diverged" or "stopped", or with a constraint broken. Raises ValueError where a column is
        missing, in another order, or has NaN, with its name.
        """
        warn(self.doubts)
        return self.raw_scores(rows, party)

    def predict(self, rows: Any, party: str | None = None) -> np.ndarray:
        """Decided labels of new rows.

        - `rows`, `party`: as in `scores`.

        Returns an array with one label per row. Warns and raises as `scores` does; also raises ValueError where the loss says
        nothing about decisions.
        """
        warn(self.doubts)
        return self.decide(self.raw_scores(rows, party))

    def predict_proba(self, rows: Any, party: str | None = None) -> np.ndarray:
        """Probabilities as the loss reads them from scores: 1/(1 + exp(−score)) for a logistic loss, softmax for a softmax loss.

        Constraints and the threshold of decisions move scores away from observed frequencies; `fp.evaluate` compares them.

        - `rows`, `party`: as in `scores`.

        Returns an array (rows, labels), in the order of `labels`. Warns and raises as `scores` does; also raises ValueError for
        other losses.
        """
        warn(self.doubts)
        return self.chances(self.raw_scores(rows, party))

    def decide(self, scores: Any) -> np.ndarray:
        """Labels for scores that are there already, such as those of `combine`."""
        return self._check_decides()(scores)

    def chances(self, scores: Any) -> np.ndarray:
        """Probabilities for scores that are there already."""
        return self._check_decides().chances(scores)

    def combine(self, outputs: Mapping[str, Any]) -> np.ndarray:
        """Over columns: the scores, from what each party's part gives for the same rows.

        - `outputs`: by party name, what `scores` of its part returned.

        Returns an array with one entry (or one line) per row. Raises ValueError where a party is missing or lengths differ.
        """
        if not isinstance(self.form, SplitForm):
            raise ValueError("combine is for models over columns, whose parties have a part each; use scores(rows)")
        missing = [name for name in self.parties if name not in outputs]
        if missing:
            raise ValueError(f"scores need the rows of every party by name; there are none of {missing[0]!r}")
        parts = [np.asarray(outputs[name], float) for name in self.parties]
        if len({len(part) for part in parts}) > 1:
            raise ValueError("scores need the same rows of every party, but theirs differ in number")
        joined = self.form.together(parts)
        if self.own is not None:
            return self.own({"x": joined})
        return self.form.scores(self.params, joined)

    # on disk

    def save(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Write the model into a folder of its own, as `fp.Result.save` does; `fp.load` reads it."""
        from fedpact.prediction.folder import save

        return save(self, folder)

    def to_onnx(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write the model as an ONNX file (extra `onnx`): float64 features "x" in, "scores" out.

        Where the loss decides, "labels" and "probabilities" come out too. A recipe stays outside: the file takes features as the
        recipe makes them, and has their names in its metadata.

        Returns the path. Raises ImportError without the onnx package, and ValueError for models over columns and of own code.
        """
        from fedpact.prediction.onnx_file import write_onnx

        return write_onnx(self, pathlib.Path(path))

    # inside

    @property
    def doubts(self) -> str | None:
        """Why predictions come with a warning; None where they do not."""
        if self.status in UNFIT:
            return f"predicting with a model whose run ended {self.status!r}: {UNFIT[self.status]}"
        if "constraints" not in self.certificate:  # a party's own part has the numbers only
            feasibility, tolerance = self.certificate.get("feasibility"), self.certificate.get("tolerance")
            if feasibility is not None and tolerance is not None and feasibility > Tolerance.of(tolerance).feasibility:
                return f"predicting with a model that breaks a constraint ({self.status})"
        broken = [c["name"] for c in self.certificate.get("constraints", ()) if c["broken"]]
        return f"predicting with a model that breaks the constraint {broken[0]!r} ({self.status})" if broken else None

    def raw_scores(self, rows: Any, party: str | None = None) -> np.ndarray:
        """`scores`, without a warning."""
        if party is not None:
            return self._of(party).raw_scores(rows)
        if isinstance(self.form, SplitForm):
            return self.combine({name: self._scored_part(name, rows) for name in self.parties})
        rows = self._prepared(rows)
        if isinstance(self.form, OwnForm):
            return self._by_own_code(rows)
        width = self.form.width(self.params)
        return self.form.scores(self.params, matrix(rows, self.form.inputs, self.features, width))

    def _by_own_code(self, rows: Any) -> np.ndarray:
        if self.own is None:
            return self.form.scores(self.params, np.zeros((0, 0)))  # which says what is missing
        inputs = self.form.inputs
        columns = {inputs: rows} if isinstance(rows, np.ndarray) else columns_of(rows)
        if self.features is not None or inputs in columns:
            checked = matrix(rows, inputs, self.features, None)
            if inputs not in columns or np.ndim(columns[inputs]) < 2:  # it was put together from columns by name
                columns = {**columns, inputs: checked}
        return self.own(columns)

    def _prepared(self, rows: Any) -> Any:
        """What the recipe makes of raw rows; rows that are prepared already stay as they are."""
        if self.recipe is None:
            return rows
        if isinstance(rows, np.ndarray):
            raise ValueError(
                "the model has a recipe for raw columns, and an array has no names: give a data frame, or "
                f"{{{self.form.inputs!r}: x}} where x is prepared already"
            )
        inputs = columns_of(rows).get(self.form.inputs)
        if inputs is None or np.ndim(inputs) < 2:
            return self.recipe.transform(rows, features_only=not isinstance(self.form, OwnForm))
        made_by = getattr(rows, "recipe", None)
        if made_by is None and getattr(rows, "features", None) is not None:
            raise ValueError(
                "the model has a recipe, and no recipe made this table: give the raw frame, or "
                f"fp.prepare(model.recipe, frames), or {{{self.form.inputs!r}: x}} where x is prepared already"
            )
        if made_by is not None and made_by.to_json() != self.recipe.to_json():
            raise ValueError("another recipe than the model's made this table: fp.prepare(model.recipe, frames)")
        return rows

    def _of(self, party: str) -> "Predictor":
        if self.split != "personal" or party not in self.parties:
            known = ", ".join(self.parties) if self.split == "personal" else "one model for all, so leave party= out"
            raise ValueError(f"party={party!r}: there is no such model; there is {known}")
        if party not in self.parts:
            raise ValueError(f"the model of {party!r} is with that party: load it from the party's own folder")
        return self.parts[party]

    def _scored_part(self, name: str, rows: Any) -> np.ndarray:
        if not isinstance(rows, Mapping) or name not in rows:
            raise ValueError(f"scores need the table of every party by name; there is none of {name!r}")
        if name not in self.parts:
            raise ValueError(
                f"the part of {name!r} is with that party: let every party score its own rows with its part, and give what "
                "these return to combine(...)"
            )
        try:
            return self.parts[name].raw_scores(rows[name])
        except ValueError as error:
            raise ValueError(f"party {name!r}: {error}") from None

    def _check_decides(self) -> DecisionRule:
        if self.rule is not None:
            return self.rule
        if self.split == "columns" and self.party is not None:
            raise ValueError(
                f"this is the part of {self.party!r} of a model over columns: scores(rows) gives its part of the scores, and "
                "the label holder decides"
            )
        raise ValueError(
            "the problem has neither a logistic, hinge or softmax loss nor fp.decisions, so nothing says how to decide: "
            "use scores(rows)"
        )

    def __str__(self) -> str:
        whose = "" if self.party is None else f" of {self.party}"
        width = None if isinstance(self.form, SplitForm | OwnForm) else self.form.width(self.params)
        size = f"{sum(array.size for array in self.params.values())} parameters"
        lines = [f"{self.form.kind}{whose}: {size}{'' if width is None else f', {width} features'}"]
        if self.features is not None:
            lines.append(f"  features: {', '.join(self.features)}")
        if self.rule is not None:
            how = (
                "largest score"
                if self.rule.by_class
                else f"{self.rule.labels[1]!r} where score > {self.rule.threshold:g}"
            )
            lines.append(f"  decides: {how}")
        lines.append(f"  {self.status}{': ' if self.message else ''}{self.message}")
        lines += [f"    {line.strip()}" for line in self.certificate.get("words", ())]
        lines.append(f"  problem {self.digest}, saved by fedpact {self.version}")
        return "\n".join(lines)

    __repr__ = __str__


def warn(doubts: str | None) -> None:
    """Warn whoever called the function that calls this."""
    if doubts is not None:
        warnings.warn(doubts, UserWarning, stacklevel=3)
