"""Functions are tried at the starting point: do they treat each row by itself, are they finite where they are read, and have
they slopes?"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpact.compiling import Jitted
from fedpact.federation.buckets import arrays
from fedpact.federation.rows import Parties, title
from fedpact.problem.atoms import Atom, Evaluator
from fedpact.problem.oracle import Oracle
from fedpact.problem.program import Compiled, Program, selected_rows

TRIED = 64  # rows of a padded party that functions are tried on
KEPT = 256  # programs that are remembered
HALVINGS = 40  # of a way on which a function changes without a slope, until what is left is a jump
JUMP = 1e-6  # of what a function changes on the whole way
_row_wise: set[Program] = set()  # programs that were tried and found to treat each row by itself


def check_row_wise(
    program: Program, parties: Parties, order: tuple[tuple[int, ...], ...], columns: tuple[str, ...], start: np.ndarray
) -> None:
    """Where a party is padded to its bucket's size, the padding must not change what a function gives on its rows."""
    sizes = parties.sizes
    room = [max(sizes[i] for i in bucket) for bucket in order]
    short = [i for most, bucket in zip(room, order, strict=True) for i in bucket if sizes[i] < most]
    if not short or program in _row_wise:
        return
    name = parties.names[short[0]]
    count = min(sizes[short[0]], TRIED)
    some = arrays(parties[name].take(np.linspace(0, sizes[short[0]] - 1, count).astype(int)), columns)
    longer = {c: np.concatenate([a, np.repeat(a[:1], count, axis=0)]) for c, a in some.items()}
    away = _away(start, 0.1)  # at zero much goes unnoticed
    for atom in {atom.function: atom for atom, _ in program.atoms if atom.may_do_anything}.values():
        tried = Jitted(lambda w, rows, atom=atom: atom.function(program.shape.unravel(w), rows))
        for w in (start, away):
            alone, among = np.asarray(tried(w, some)), np.asarray(tried(w, longer))[:count]
            size = np.abs(alone[np.isfinite(alone)]).max(initial=0.0)
            if not np.allclose(among, alone, rtol=1e-6, atol=1e-9 * size, equal_nan=True):
                raise ValueError(
                    f"{atom} gives rows of {title(name)} other numbers when more rows stand beside them, but fp.mean takes "
                    "a function that treats each row by itself; write one that looks across rows as fp.value(fn)"
                )
    if len(_row_wise) >= KEPT:
        _row_wise.clear()
    _row_wise.add(program)


def guarded(oracles: tuple[Oracle, ...], titles: Sequence[Sequence[str]], start: jax.Array) -> tuple[Oracle, ...]:
    """The same oracles; means whose functions are not finite on rows that their masks leave out do not read those."""
    program = oracles[0].program
    if not any(_may_spoil(atom) for atom, _ in program.atoms):
        return oracles
    flags = [False] * len(program.atoms)
    for oracle, names in zip(oracles, titles, strict=True):
        spoilt, empty = (np.asarray(x) for x in _spoilt(oracle, start))
        for party, place in np.argwhere(spoilt):
            flags[place] = True
            if empty[party, place]:
                raise ValueError(
                    f"{program.atoms[place][0]} has no finite value or slope on rows of {names[party]}, none of which it "
                    "takes; make the function finite there by jnp.where, or leave that party out"
                )
    if any(flags):
        program = dataclasses.replace(program, guarded=tuple(flags))
        oracles = tuple(dataclasses.replace(oracle, program=program) for oracle in oracles)
    return oracles


def guarded_server(oracle: Oracle, start: jax.Array) -> Oracle:
    if not any(_may_spoil(atom) for atom, _ in oracle.program.atoms):
        return oracle
    (own,) = guarded((alone(oracle),), [["the server"]], start)
    return dataclasses.replace(oracle, program=own.program)


def alone(oracle: Oracle) -> Oracle:
    """With a leading axis over holders, of whom there is one."""
    return jax.tree.map(lambda leaf: leaf[None], oracle)


@Jitted
def _spoilt(oracles: Oracle, start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Per party and atom: whether rows of weight 0 have no finite value or slope, and whether there are only such rows."""

    def of(own: Oracle) -> tuple[jax.Array, jax.Array]:
        spoilt, empty = [], []
        for (atom, _), weights in zip(own.program.atoms, own.program.lines(own.weights), strict=True):
            left_out = jnp.zeros(1, bool) if weights is None else weights == 0
            empty.append(jnp.all(left_out))
            if not _may_spoil(atom):
                spoilt.append(jnp.zeros((), bool))
                continue

            def per_row(w: jax.Array, atom: Any = atom) -> jax.Array:
                return jnp.asarray(atom.function(own.program.shape.unravel(w), own.rows), w.dtype)

            values, pull = jax.vjp(per_row, start)
            (slope,) = pull(left_out.astype(values.dtype))
            spoilt.append(~(jnp.all(jnp.isfinite(values) | ~left_out) & jnp.all(jnp.isfinite(slope))))
        return jnp.stack(spoilt), jnp.stack(empty)

    return jax.vmap(of)(oracles)


def check_slopes(
    compiled: Compiled,
    oracles: Sequence[Oracle],
    titles: Sequence[Sequence[str]],
    start: np.ndarray,
    inputs: dict[str, np.ndarray] | None = None,
) -> None:
    """Raise ValueError where a user's function is a step function: it changes, and only by jumps.

    - `oracles`: with a leading axis over the holders that `titles` names.
    - `inputs`: columns that depend on parameters elsewhere (default: none do).
    """
    first = (start, inputs or {})
    for own, names in zip(oracles, titles, strict=True):
        atoms = [atom for atom, _ in own.program.atoms if _may_jump(atom)]
        if not atoms or (_tried(own, first)[1] > 0).all():
            continue
        points = [first, *(jax.tree.map(lambda leaf, far=far: _away(leaf, far), first) for far in (0.1, 1.0))]
        values, steepest = (np.stack(x) for x in zip(*(_tried(own, point) for point in points), strict=True))
        changes = (values != values[0]).any(axis=0) & (steepest == 0).all(axis=0)
        for party, place in np.argwhere(changes):
            other = points[int(np.flatnonzero(values[:, party, place] != values[0, party, place])[0])]
            if _jumps(own, (party, place), first, other):
                atom = atoms[place]
                raise ValueError(
                    f"{_reader(compiled, atom)}: {atom} is a step function at {names[party]}, which has no slope to follow; "
                    "state rates of decisions by fp.mean(fp.decisions(model)), which are counted, or give a smooth function"
                )


def _jumps(own: Oracle, at: tuple[int, int], one: Any, other: Any) -> bool:
    """Whether a function that has other values at two points changes by a jump, and has no slope on the way to it."""
    low, high = (float(_tried(own, point)[0][at]) for point in (one, other))
    whole = abs(high - low)
    for _ in range(HALVINGS):
        middle = jax.tree.map(lambda a, b: 0.5 * (a + b), one, other)
        values, steepest = _tried(own, middle)
        if steepest[at] != 0:
            return False
        if values[at] != low:
            other, high = middle, float(values[at])
        else:
            one = middle
    return abs(high - low) > JUMP * whole


@Jitted
def _of_all(oracles: Oracle, point: Any) -> tuple[jax.Array, jax.Array]:
    """Per holder and atom that may jump: its value, and the largest entry of its gradient."""

    def of(own: Oracle) -> tuple[jax.Array, jax.Array]:
        program, found = own.program, []
        for place, ((atom, _), line) in enumerate(zip(program.atoms, program.lines(own.weights), strict=True)):
            if not _may_jump(atom):
                continue

            def value(at: Any, place: int = place, atom: Atom = atom, line: Any = line) -> jax.Array:
                w, inputs = at
                rows = {**own.rows, **inputs}
                rows = selected_rows(rows, line) if line is not None and program.is_guarded(place) else rows
                return atom.evaluate(Evaluator(program.shape.unravel(w), rows, w.dtype), line)

            there, slope = jax.value_and_grad(value)(point)
            largest = [jnp.max(jnp.abs(leaf), initial=0.0) for leaf in jax.tree.leaves(slope)]
            found.append((there, jnp.max(jnp.stack(largest))))
        values, steepest = zip(*found, strict=True)
        return jnp.stack(values), jnp.stack(steepest)

    return jax.lax.map(
        of, oracles
    )  # one holder after the other: of large models there may be no room for all gradients


def _tried(oracles: Oracle, point: Any) -> tuple[np.ndarray, np.ndarray]:
    values, steepest = _of_all(oracles, point)
    return np.asarray(values), np.asarray(steepest)


def _away(start: np.ndarray, far: float) -> np.ndarray:
    """Another point, `far` as a part of 1 + |start|."""
    return start + far * (1 + np.abs(start)) * np.cos(1.0 + np.arange(start.size)).reshape(start.shape)


def _may_jump(atom: Atom) -> bool:
    users_own = atom.may_do_anything if atom.over_rows else not atom.is_squared_norm
    return users_own and atom.rate is None


def _reader(compiled: Compiled, atom: Atom) -> str:
    """Who reads an atom, in words."""
    for constraint, _, _ in compiled.rows:
        if any(atom == other for other, _ in constraint.expression.atoms()):
            return f"constraint {constraint.name!r}"
    return "the objective"


def not_finite(
    oracles: tuple[Oracle, ...], server: Oracle, order: tuple[tuple[int, ...], ...], names: Sequence[str], w: jax.Array
) -> str | None:
    """Which function has no finite value or slope at w, and where, in words; None where all have."""
    holders = [(own, [title(names[i]) for i in bucket]) for own, bucket in zip(oracles, order, strict=True)]
    holders.append((alone(server), ["the server"]))
    for own, titles in holders:
        values, slopes = (np.asarray(x) for x in jax.vmap(_slopes, in_axes=(0, None))(own, w))
        for party, place in np.argwhere(~(np.isfinite(values) & np.isfinite(slopes).all(-1))):
            what = "slope" if np.isfinite(values[party, place]) else "value"
            return f"{own.program.atoms[place][0]} has no finite {what} at {titles[party]}"
    return None


def _slopes(own: Oracle, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    def atoms(w: jax.Array) -> jax.Array:
        return own.program.evaluate(w, own.rows, own.weights, own.rates)

    return atoms(w), jax.jacrev(atoms)(w)


def _may_spoil(atom: Atom) -> bool:
    return (atom.where is not None or atom.weights is not None) and atom.may_do_anything
