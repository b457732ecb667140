"""Known rows and what was received: which of them a party holds, and with which label.

Every reading is a sum over the party's rows of what one row contributes, and the contribution of a known row can be computed.
So the weights x >= 0 of candidates solve A x = b, where column j of A has the contributions of candidate j to all readings: 1
for a row that the party holds, 0 for another. A row whose label is not known is a candidate once for each label.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import scipy.optimize

from fedpact.federation.table import Table
from fedpact.federation.table_checks import Holder, row_weights
from fedpact.privacy.readings import Reading
from fedpact.problem.models import Linear
from fedpact.problem.program import Program, RateNumbers

MOST_EQUATIONS = 6000  # drawn from all that there are
FITS = 1e-5  # of what was received is left unexplained where the weights can be trusted
WHOLE = 0.1  # so near a whole number are the weights of that many
TRUSTED = 0.8
PADDED = 64  # candidates are padded to a multiple of this, so that parties share programs


@dataclasses.dataclass(frozen=True)
class Means:
    """The problem at one party as the server knows it: its program, and over how many rows each mean is taken there.

    - `totals`: for each atom over rows, what weights of rows are divided by.
    """

    program: Program
    totals: np.ndarray

    @classmethod
    def of(cls, program: Program, tables: Sequence[Table], place: int) -> "Means":
        """Of the party at this place; the counts are in the descriptions that parties send before the first round."""
        totals = []
        for atom, scope in program.over_rows:
            held = tables if scope == "pooled" else [tables[place]]
            totals.append(sum(float(row_weights(atom, [Holder("a party", table)]).sum()) for table in held))
        return cls(program, np.array(totals))

    @property
    def model(self) -> Linear | None:
        """The linear model with one score a row, where all functions of rows are losses of it; else None."""
        losses = [atom.loss for atom, _ in self.program.over_rows]
        models = {loss.model for loss in losses if loss is not None}
        if None in losses or len(models) != 1:
            return None
        model = models.pop()
        return model if type(model) is Linear and model.outputs is None else None

    def weights(self, table: Table) -> np.ndarray:
        """(atoms over rows, rows): what each row would count at this party."""
        lines = [row_weights(atom, [Holder("the candidates", table)]) for atom, _ in self.program.over_rows]
        return np.stack([line / total for line, total in zip(lines, self.totals, strict=True)])

    def pull(self, reading: Reading) -> np.ndarray:
        """Weights of the atoms in a reading."""
        count = len(self.program.atoms)
        sides = (np.array([reading.objective]), reading.constraints, reading.pooled)
        total = np.zeros(count)
        for side, of_side in zip(self.program.sides, sides, strict=True):
            total += of_side @ side.matrix(count)
        return total

    def of_rows(self, reading: Reading) -> np.ndarray:
        """What was read, without what does not depend on rows: ‖params‖² among the functions."""
        share = self.pull(reading)[list(self.program.norms)].sum()
        own = 2 * share * (reading.w if reading.kind == "gradient" else np.eye(reading.w.size))
        return reading.value - own

    @property
    def readable(self) -> bool:
        """Whether all functions are sums over rows, but for ‖params‖²."""
        return all(atom.over_rows or atom.is_squared_norm for atom, _ in self.program.atoms)


def contributions(means: Means, reading: Reading, table: Table) -> np.ndarray | None:
    """What each row of a table would add to a reading: (rows, numbers), of a Hessian its upper triangle. None: not known."""
    program, model = means.program, means.model
    if reading.kind == "hessian" and model is None:
        return None
    over_rows = np.array([atom.over_rows for atom, _ in program.atoms], bool)
    pull = np.where(over_rows, means.pull(reading), 0.0)
    rates = RateNumbers.of(program.rates)
    rates = dataclasses.replace(rates, temperatures=reading.softening * rates.temperatures)
    count, weights = table.rows, means.weights(table)
    room = -(-count // PADDED) * PADDED
    places = np.concatenate([np.arange(count), np.zeros(room - count, int)])
    rows = {name: table[name][places] for name in table if table[name].dtype.kind in "biuf"}
    if reading.kind == "gradient":
        return np.nan_to_num(np.asarray(_gradients(program, reading.w, rows, weights.T[places], rates, pull)))[:count]
    assert model is not None
    slopes = np.asarray(model.score_slopes(dict(rows)))
    bends = np.nan_to_num(np.asarray(_bends(program, reading.w, rows, weights.T[places], rates, pull, slopes)))
    first, second = np.triu_indices(reading.w.size)
    return (bends[:, None] * slopes[:, first] * slopes[:, second])[:count]


@functools.partial(jax.jit, static_argnums=0)
def _gradients(program: Program, w: Any, rows: Any, weights: Any, rates: Any, pull: Any) -> jax.Array:
    return jax.vmap(lambda row, weight: jax.grad(_of_row(program, row, weight, rates, pull))(w))(rows, weights)


@functools.partial(jax.jit, static_argnums=0)
def _bends(program: Program, w: Any, rows: Any, weights: Any, rates: Any, pull: Any, slopes: Any) -> jax.Array:
    """The second derivative of each row's part by its score."""

    def one(row: Any, weight: Any, slope: Any) -> jax.Array:
        part, along = _of_row(program, row, weight, rates, pull), slope / (slope @ slope)
        return jax.jvp(lambda v: jax.jvp(part, (v,), (along,))[1], (w,), (along,))[1]

    return jax.vmap(one)(rows, weights, slopes)


def _of_row(program: Program, row: Any, weight: Any, rates: Any, pull: Any) -> Any:
    alone = {name: column[None] for name, column in row.items()}
    return lambda w: pull @ program.evaluate(w, alone, weight[:, None], rates)


@dataclasses.dataclass(frozen=True)
class Fit:
    """Candidates' weights, one column for each variant of a row, and whether they explain what was received."""

    weights: np.ndarray  # (rows, variants)
    trusted: bool

    @property
    def of_rows(self) -> np.ndarray:
        return self.weights.sum(1)


def fitted(means: Means, readings: Sequence[Reading], variants: Sequence[Table], seed: int = 0) -> Fit:
    """Explain readings by candidates.

    - `variants`: tables of the same candidates, in the same order, with different labels.
    """
    rows = variants[0].rows
    blocks, values = [], []
    for reading in readings:
        parts = [contributions(means, reading, table) for table in variants]
        if any(part is None for part in parts):
            continue
        value = means.of_rows(reading)
        value = value[np.triu_indices(reading.w.size)] if reading.kind == "hessian" else value
        size = float(np.linalg.norm(value))
        if size > 0:
            blocks.append(np.concatenate(parts).T / size)  # pyright: ignore[reportArgumentType, reportCallIssue]
            values.append(value / size)
    if not blocks:
        return Fit(np.zeros((rows, len(variants))), False)
    matrix, value = np.concatenate(blocks), np.concatenate(values)
    if len(matrix) > MOST_EQUATIONS:
        kept = np.random.default_rng(seed).choice(len(matrix), MOST_EQUATIONS, replace=False)
        matrix, value = matrix[kept], value[kept]
    weights = nonnegative(matrix, value)
    left = np.linalg.norm(matrix @ weights - value) / np.linalg.norm(value)
    weights = weights.reshape(len(variants), rows).T
    moving = np.abs(matrix).max(0).reshape(len(variants), rows).T.max(1) > 0
    total = weights.sum(1)[moving]
    whole = np.mean(np.abs(total - np.round(total)) <= WHOLE) if total.size else 0.0
    determined = (weights > 0).sum() <= TRUSTED * len(matrix)  # else any numbers could be explained
    return Fit(weights, bool(left <= FITS and determined and whole >= TRUSTED and (total > 0.5).any()))


def explained(means: Means, fit: Fit, variants: Sequence[Table], like: Reading) -> Callable[[np.ndarray], np.ndarray]:
    """The gradient at a point of what `like` is the gradient of, from the rows of a fit with their weights."""

    def at(w: np.ndarray) -> np.ndarray:
        there = dataclasses.replace(like, w=w, value=np.zeros_like(w))
        parts = [contributions(means, there, table) for table in variants]
        total = sum(weights @ part for weights, part in zip(fit.weights.T, parts, strict=True) if part is not None)
        return total - means.of_rows(there)

    return at


def nonnegative(matrix: np.ndarray, value: np.ndarray) -> np.ndarray:
    """argmin ‖A x − b‖ over x >= 0, with the columns of A scaled to length 1; 0 for columns of zeros.

    - `matrix`: A (equations, unknowns). `value`: b.
    """
    size = np.linalg.norm(matrix, axis=0)
    used = size > 0
    out = np.zeros(len(size))
    if used.any():
        basis, triangle = np.linalg.qr(matrix[:, used] / size[used])
        try:
            found = scipy.optimize.nnls(triangle, basis.T @ value, maxiter=10 * len(size))[0]
        except RuntimeError:  # it went round in circles
            found = scipy.optimize.lsq_linear(triangle, basis.T @ value, (0.0, np.inf)).x
        out[used] = np.maximum(found, 0.0) / size[used]
    return out
