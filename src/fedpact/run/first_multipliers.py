"""Multipliers that a run begins with: given by name, or those of an earlier result."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedpact.certificate import Certificate
from fedpact.federation.setting import Setting
from fedpact.problem.atoms import Scope
from fedpact.problem.oracle import Multipliers, Oracle
from fedpact.protocol.algorithm import Algorithm
from fedpact.run.fingerprint import digest
from fedpact.settings.base import Bound


def begun_with(
    bound: Bound, algorithm: Algorithm, setting: Setting, given: Any, before: Certificate | None, starts: int
) -> Bound:
    """The same problem with the multipliers that parties and server begin with.

    - `given`: by constraint, as of `fp.solve` (None: none). `before`: of an earlier result, for constraints not in `given`.

    Raises ValueError or TypeError where `given` does not fit the problem or the method.
    """
    if not algorithm.begins_with_multipliers or starts > 1:
        if given is not None:
            why = (
                f"{type(algorithm).__name__} begins with none; fp.ProxAL(), fp.CentralProxAL(), fp.FairVFL() and "
                "fp.PrimalDual() do"
                if starts == 1
                else f"they belong to one start, and there are {starts}"
            )
            raise ValueError(f"multipliers=: {why}; leave them out")
        return bound
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"multipliers={given!r}: by name of constraint, such as {{'recall': 0.5}}")
    party, server = setting.programs
    sizes: dict[Scope, tuple[int, int]] = {
        "party": (len(bound.names), len(party.constraints)),
        "server": (1, len(server.constraints)),
        "pooled": (1, len(party.pooled)),
    }
    found: dict[Scope, Any] = {scope: np.zeros(size) for scope, size in sizes.items()}
    given = dict(given or {})
    for constraint, scope, rows in bound.compiled.rows:
        lines = found[scope][:, list(rows)]
        if constraint.name in given:
            lines = _checked(constraint.name, given.pop(constraint.name), lines.shape, constraint.kind == "==")
        elif before is not None:
            lines = _carried(before, constraint.name, scope, bound.names, lines)
        found[scope][:, list(rows)] = lines
    if given:
        known = ", ".join(repr(constraint.name) for constraint, _, _ in bound.compiled.rows) or "none"
        raise ValueError(f"multipliers= names {next(iter(given))!r}, but the constraints are {known}")
    pooled: Any = found["pooled"][0]
    stacks = bound.stacks
    if all(isinstance(stack, Oracle) for stack in stacks):
        each = bound.by_bucket([Multipliers(own, pooled) for own in found["party"]])
        stacks = tuple(dataclasses.replace(stack, first=own) for stack, own in zip(stacks, each, strict=True))
    functions = dataclasses.replace(bound.server_data.functions, first=Multipliers(found["server"][0], pooled))
    own = dataclasses.replace(bound.server_data, functions=functions)
    return dataclasses.replace(bound, stacks=stacks, server_data=own)


def digest_of_start(bound: Bound) -> str:
    """Of the first parameters, and of the first multipliers where there are some."""
    holders = (*bound.stacks, bound.server_data.functions)
    first = [np.asarray(leaf) for holder in holders for leaf in jax.tree.leaves(getattr(holder, "first", None))]
    some = any(leaf.any() for leaf in first)
    return digest((np.asarray(bound.start), *first)) if some else digest(np.asarray(bound.start))


def _checked(name: str, value: Any, shape: tuple[int, ...], equality: bool) -> np.ndarray:
    try:
        lines = np.asarray(value, float)
        lines = np.broadcast_to(lines[:, None] if lines.ndim == 1 else lines, shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"multipliers={{{name!r}: ...}}: one number, one for each holder ({shape[0]}), or an array (holders, scalar "
            f"inequalities) = {shape}"
        ) from None
    if not np.isfinite(lines).all() or (not equality and (lines < 0).any()):
        raise ValueError(f"multipliers={{{name!r}: ...}}: finite{'' if equality else ' and not negative'}")
    return lines


def _carried(before: Certificate, name: str, scope: Scope, names: tuple[str, ...], blank: np.ndarray) -> np.ndarray:
    """Those of an earlier run's constraint of this name, 0 where it had none like it or did not tell them."""
    report = next((r for r in before.constraints if r.name == name and r.scope == scope), None)
    if report is None or len(report.rows) != blank.shape[1] or report.hidden:
        return blank
    of_scope: dict[Scope, Any] = {
        "party": before.party_multipliers,
        "server": before.server_multipliers[None],
        "pooled": before.pooled_multipliers[None],
    }
    lines = np.asarray(of_scope[scope])[:, list(report.rows)]
    if scope == "party":
        places = {holder: place for place, holder in enumerate(report.holders)}
        lines = np.stack([lines[places[n]] if n in places else np.zeros(blank.shape[1]) for n in names])
    return np.where(np.isfinite(lines), lines, 0.0)
