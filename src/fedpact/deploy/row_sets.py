"""The sets of a party's rows that a pact's numbers are over, and whether two of them tell the rows in which they differ.

A mean over 61 rows and one over 60 of them are each over many rows, and their difference is one row. So a party compares
all sets of rows behind what it sends, two by two; the sets themselves never leave it.

Which rows a mask takes is known. Which rows a function of the pact's own reads is tried at a few points: a row is read where the
value or the slope of the function depends on it. A function that hides a row at these points and shows it elsewhere is not
found out: read the pact's own functions, and pin its files.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.engines.serialization import Refused
from fedpact.evaluation.counts import Question
from fedpact.federation.table import Table
from fedpact.problem.atoms import Atom
from fedpact.problem.oracle import Oracle
from fedpact.problem.statement import Problem
from fedpact.promises.held_out import TestedMean

POINTS = 3  # at which functions of the pact's own are tried: the start, near it, and farther away
AWAY = 0.5  # how far, for each of the later points


class RowSet(NamedTuple):
    """The rows behind a number, and what that is in words that say nothing of the table."""

    words: str
    rows: np.ndarray  # (rows,) of booleans


def admit_row_sets(sets: Sequence[RowSet], min_rows: int) -> None:
    """Raise Refused where a set, or what two of them differ in, has fewer rows than `min_rows` and more than none."""
    different = list({each.rows.tobytes(): each for each in sets if each.rows.any()}.values())
    for each in different:
        if each.rows.sum() < min_rows:
            raise Refused(f"{each.words} is over fewer of its rows than the {min_rows} that its policy demands")
    for one, other in itertools.combinations(different, 2):
        if np.count_nonzero(one.rows != other.rows) < min_rows:
            raise Refused(
                f"{one.words} and {other.words} are over the same of its rows but for fewer than the {min_rows} that its policy "
                "demands: their difference would tell of these few; leave one of the two out, or state both over the same rows"
            )


def sets_of_problem(problem: Problem, own: Oracle, start: np.ndarray) -> Iterator[RowSet]:
    """Of every mean and every value that the party computes. `start`: the first parameters, flat."""
    stated = {str(atom) for atom, _ in problem.atoms()}
    count = int(own.count)
    weights = np.asarray(own.weights)[:, :count] > 0
    lines = own.program.lines(np.arange(len(weights)))  # pyright: ignore[reportArgumentType]
    for (atom, _), line in zip(own.program.atoms, lines, strict=True):
        words = str(atom) if str(atom) in stated else "a mean over one of its groups"
        if line is None:
            if not atom.is_squared_norm:
                yield RowSet(words, _rows_of_value(atom, own, start)[:count])
        elif atom.may_do_anything:
            yield RowSet(words, weights[line] & _rows_of_integrand(atom, own, start)[:count])
        else:
            yield RowSet(words, weights[line])


def sets_of_evaluation(question: Question, table: Table, min_rows: int) -> Iterator[RowSet]:
    """Of the counts by group and label; groups with fewer rows of a label than `min_rows` are withheld anyway."""
    positive = table[question.label] == question.positive
    groups = np.zeros(table.rows) if question.group is None else table[question.group]
    words = "what `evaluate` counts" + ("" if question.group is None else f" of a group in column {question.group!r}")
    for value in np.unique(groups):
        parts = [(groups == value) & of_label for of_label in (positive, ~positive)]
        if not any(0 < part.sum() < min_rows for part in parts):
            yield from (RowSet(words, part) for part in parts)


def sets_held_out(means: Sequence[TestedMean], table: Table) -> Iterator[RowSet]:
    """Of a promise's means over the rows that are held out."""
    for each in means:
        where = each.mean.where
        yield RowSet(
            f"{each.mean}, held out,", np.ones(table.rows, bool) if where is None else np.asarray(where(table))
        )


def _points(start: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points, and a direction at each."""
    random = np.random.default_rng(0)
    for number in range(POINTS):
        yield start + AWAY * number * random.normal(size=start.shape), random.normal(size=start.shape)


def _rows_of_integrand(atom: Atom, own: Oracle, start: np.ndarray) -> np.ndarray:
    """The rows whose number changes with the parameters; where that of none does, those whose number is not 0."""

    @jax.jit
    def tried(w: jax.Array, direction: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(lambda w: _called(atom, own, w, own.rows), (w,), (direction,))

    values, slopes = (
        np.stack(each) for each in zip(*(map(np.asarray, tried(*p)) for p in _points(start)), strict=True)
    )
    changing = ((slopes != 0) | (values != values[0])).any(0)
    return changing if changing.any() else (values != 0).any(0)


def _rows_of_value(atom: Atom, own: Oracle, start: np.ndarray) -> np.ndarray:
    """The rows on whose numbers the value, or its slope, depends; raises Refused where that cannot be told."""
    numbers = {name: column for name, column in own.rows.items() if jnp.issubdtype(column.dtype, jnp.floating)}

    def value(numbers: dict[str, jax.Array], w: jax.Array, direction: jax.Array) -> jax.Array:
        rows = {**own.rows, **numbers}
        here, slope = jax.jvp(lambda w: _called(atom, own, w, rows), (w,), (direction,))
        return here + slope

    tried, without = jax.jit(jax.grad(value)), {name: jnp.zeros_like(c) for name, c in own.rows.items()}
    read = np.zeros(own.weights.shape[-1], bool)
    for point in _points(start):
        for slope in tried(numbers, *point).values():
            read |= (np.asarray(slope).reshape(len(read), -1) != 0).any(1)
    if not read.any() and any(_depends(atom, own, w, without) for w, _ in _points(start)):
        raise Refused(
            f"{atom} reads its table, and of which rows cannot be told; its policy demands rows behind every number: state it as "
            "fp.mean(function, where=mask)"
        )
    return read


def _depends(atom: Atom, own: Oracle, w: np.ndarray, other_rows: Any) -> bool:
    return not np.array_equal(_called(atom, own, w, own.rows), _called(atom, own, w, other_rows), equal_nan=True)


def _called(atom: Atom, own: Oracle, w: Any, rows: Any) -> jax.Array:
    return jnp.asarray(atom.function(own.program.shape.unravel(w), rows), float)
