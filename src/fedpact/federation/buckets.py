"""Parties of like size share a bucket, so that unequal parties run vectorised without waste worth naming."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedpact.federation.table import Table
from fedpact.problem.columns import numeric
from fedpact.problem.oracle import Oracle
from fedpact.problem.program import Program

FILL = 0.8  # a party joins a bucket when it fills at least this part of it
SMALL = 0.02  # buckets with less than this part of all rows are padded into the next larger one
FEW = 10_000  # numbers of a bucket, which take microseconds to compute with: sizes are powers of two up to here,
FEWEST = 32  # of rows, at least
MUCH = 20_000_000  # numbers of a bucket above which copying them takes longer than compiling for another size
MOST_SIZES = 32  # distinct party sizes that a function reading whole tables may meet, each compiled apart


def arrays(table: Table, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """A table's columns of numbers, as JAX will see them; of all columns or of those named."""
    return numeric({name: table[name] for name in (table.columns if names is None else names)})


def buckets(sizes: list[int], exact: bool) -> tuple[tuple[int, ...], ...]:
    """Parties of like size, to be padded to the largest of them; `exact`: no padding, one bucket per size."""
    by_size = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    groups: list[list[int]] = []
    for party in by_size:
        room = sizes[groups[-1][0]] if groups else 0
        if groups and (sizes[party] == room if exact else sizes[party] >= FILL * room):
            groups[-1].append(party)
        else:
            groups.append([party])
    if exact and len(groups) > MOST_SIZES:
        raise ValueError(
            f"the parties have {len(groups)} different sizes and fp.value(fn) reads their tables whole, which "
            f"compiles fn once per size (at most {MOST_SIZES}); write it as fp.mean of a row-wise function"
        )
    if not exact:
        total = sum(sizes)
        merged: list[list[int]] = []
        for bucket in groups:
            if merged and sizes[merged[-1][0]] * len(bucket) < SMALL * total:
                merged[-1] += bucket
            else:
                merged.append(bucket)
        groups = merged
    return tuple(tuple(sorted(bucket)) for bucket in groups)


def _rounded_up(rows: int, numbers: int) -> int:
    """The next of eight sizes between a power of two and its double; a power of two where that is few `numbers` a row."""
    power = max(FEWEST, 2 ** (rows - 1).bit_length())
    if power * numbers <= FEW:
        return power
    step = 2 ** max(0, rows.bit_length() - 4)
    return -(-rows // step) * step


def stacked(
    program: Program,
    tables: list[Table],
    weights: list[np.ndarray],
    columns: tuple[str, ...],
    places: tuple[int, ...],
    disclose: bool,
    exact: bool,
) -> Oracle:
    """Oracles of one bucket with a leading party axis, on numpy; short tables repeat their first row, with weight zero.

    `exact`: no padding. Else, where all functions are known to treat each row by itself, all are padded to one of a few sizes,
    so that a party that gains a row, or another fold of a cross-validation, finds its program compiled; very many rows are not,
    and if all parties have equally many, they are not copied either.
    """
    room = max(table.rows for table in tables)
    numbers = len(tables) * sum(tables[0][name][:1].size for name in columns)  # a row of each
    if not exact and room * numbers <= MUCH and not any(atom.may_do_anything for atom, _ in program.atoms):
        room = _rounded_up(room, numbers)

    rows: Any = {name: _padded([table[name] for table in tables], room) for name in columns}
    lines: Any = np.zeros((len(tables), weights[0].shape[0], room))
    for line, own in zip(lines, weights, strict=True):
        line[:, : own.shape[1]] = own
    index: Any = np.asarray(places)
    count: Any = np.asarray([table.rows for table in tables])
    return Oracle.of(program, rows, lines, index, count, disclose)


def _padded(columns: list[np.ndarray], room: int) -> np.ndarray:
    """One column of all these parties, as JAX will see it."""
    first = numeric({"": columns[0][:1]})[""]
    shape, dtype = (len(columns), room, *first.shape[1:]), np.result_type(first, *{c.dtype for c in columns})
    whole = in_one(columns) if all(len(column) == room for column in columns) else None
    if whole is not None and whole.dtype == dtype:
        return whole.reshape(shape)
    together = np.empty(shape, dtype)
    for own, column in zip(together, columns, strict=True):
        own[: len(column)] = column
        own[len(column) :] = column[0]
    return together


def in_one(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """Consecutive parts of one array as one, to be read only and not copied; None where they are anything else."""
    first, base, rows = parts[0], parts[0].base, 0
    if base is None or any(part.base is not base for part in parts):
        return None
    at_first = first.__array_interface__
    place, width, kind = at_first["data"][0], first.shape[1:], at_first["typestr"]
    for part in parts:  # may be very many
        about = part.__array_interface__
        shape = about["shape"]
        consecutive = about["data"][0] == place and about["strides"] is None  # None: in the order of C, without gaps
        if not consecutive or about["typestr"] != kind or shape[1:] != width:
            return None
        place += part.nbytes
        rows += shape[0]
    return np.lib.stride_tricks.as_strided(first, (rows, *first.shape[1:]), first.strides, writeable=False)
