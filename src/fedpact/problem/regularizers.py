"""Regularisers h(w), added to the objective: smooth ones by their gradient, the others by their proximal operator.

    fp.l2(a)   a ‖w‖²        fp.l1(a)   a ‖w‖₁       fp.box(lo, hi)   lo <= w <= hi       fp.group(a)   a Σ_g ‖w_g‖₂

and by `problem/proximal.py` the sets of `fp.sets` and any convex function with a known proximal operator, `fp.prox`.

`on` names the parameters w that are regularised (default: all of them). Sums of regularisers are regularisers.
"""

import dataclasses
import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from fedpact.problem.flat_regularizer import FlatRegularizer, Kinks
from fedpact.problem.parameter_names import leaf_names, parameter_names
from fedpact.problem.proximal import FlatProximal, Operator, flat_terms, places_of
from fedpact.problem.sets import AnySet, Both, Box, ConvexSet, Everywhere, in_words


@dataclasses.dataclass(frozen=True)
class Part:
    """One term: `numbers` are (weight,) for l1, l2 and group, and (lower, upper) for box; `operator` is that of set and prox."""

    kind: Literal["l1", "l2", "box", "group", "set", "prox"]
    numbers: tuple[float, ...]
    on: tuple[str, ...] | None
    groups: tuple[tuple[int, ...], ...] | None = None
    operator: Any = None

    def __str__(self) -> str:
        """As a formula, where w are all parameters: 0.1 ‖w‖², 0.1 ‖params[b]‖₁, -1 <= w <= 1."""
        of = "w" if self.on is None else f"params[{', '.join(self.on)}]"
        if self.kind in ("set", "prox"):
            operator = self.operator
            return f"{of} in {in_words(operator)}" if self.kind == "set" else f"h({of}) of {operator.name}"
        if self.kind == "box":
            lower, upper = self.numbers
            below = f"{lower:g} <= " if math.isfinite(lower) else ""
            return f"{below}{of}" + (f" <= {upper:g}" if math.isfinite(upper) else "")
        norm = {"l1": f"‖{of}‖₁", "l2": f"‖{of}‖²", "group": f"Σ_g ‖{of}_g‖"}[self.kind]
        return f"{self.numbers[0]:g} {norm}"


@dataclasses.dataclass(frozen=True)
class Regularizer:
    """A sum of terms `fp.l1`, `fp.l2`, `fp.box`, `fp.group`, `fp.prox` and sets of `fp.sets`.

    A group term may be added to l2 terms only; fp.prox and sets to fp.l2, and to terms on other parameters.
    """

    parts: tuple[Part, ...] = ()

    def __add__(self, other: Any) -> "Regularizer":
        if not isinstance(other, Regularizer | ConvexSet | Both):
            raise TypeError(f"a regulariser is added to another one, not to {other!r}")
        other = as_regularizer(other)
        parts = self.parts + other.parts
        if any(p.kind == "group" for p in parts) and sum(p.kind != "l2" for p in parts) > 1:
            raise ValueError("fp.group has no closed-form proximal operator together with l1, box or another group")
        return Regularizer(parts)

    def __radd__(self, other: Any) -> "Regularizer":
        if isinstance(other, int) and other == 0:  # where sum([...]) begins
            return self
        return self + other

    @property
    def even(self) -> float | None:
        """The weight a where this is a‖w‖² over all parameters, else None."""
        if any(part.kind != "l2" or part.on is not None for part in self.parts):
            return None
        return float(sum(part.numbers[0] for part in self.parts))

    def flat(self, params: Any) -> "FlatRegularizer":
        """The same regulariser on the flat vector of these parameters. Raises ValueError where it does not fit them."""
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(params))
        ridge, l1 = np.zeros(size), np.zeros(size)
        lower, upper = np.full(size, -math.inf), np.full(size, math.inf)
        group, groups, weight = np.full(size, -1), 0, np.zeros(0)
        operators: list[tuple[str, Any, tuple[tuple[int, int], ...]]] = []
        for part in self.parts:
            chosen = _selection(params, part.on)
            if part.kind == "l2":
                ridge += part.numbers[0] * chosen
            elif part.kind == "l1":
                l1 += part.numbers[0] * chosen
            elif part.kind == "box":
                lower = np.where(chosen, np.maximum(lower, part.numbers[0]), lower)
                upper = np.where(chosen, np.minimum(upper, part.numbers[1]), upper)
            elif part.kind == "group":
                group, groups = _group_numbers(params, part)
                weight = np.full(groups, part.numbers[0])
            else:
                for term, spans in flat_terms(part.operator, params):
                    if isinstance(term, Box):
                        places = places_of(spans)
                        lower[places] = np.maximum(lower[places], term.lower)
                        upper[places] = np.minimum(upper[places], term.upper)
                    elif not isinstance(term, Everywhere):
                        operators.append((str(part), term, spans))
        if np.any(lower > upper):
            raise ValueError("the boxes of the regulariser have no point in common; widen one or leave it out")
        others = (l1 != 0) | np.isfinite(lower) | np.isfinite(upper)
        for words, _, spans in operators:
            places = places_of(spans)
            if np.any(others[places]):
                raise ValueError(f"{words} overlaps another term; the proximal operator of their sum is one fp.prox")
            if np.ptp(ridge[places]) > 0:
                raise ValueError(f"{words} needs fp.l2 to have one weight on all of its parameters, or none")
            others[places] = True
        proximal = tuple(FlatProximal(term, 1.0, 1.0, spans) for _, term, spans in operators)
        kinks: Kinks = "none"
        if groups:
            kinks = "groups"
        elif operators:
            kinks = "proximal"
        elif l1.any() or np.isfinite(lower).any() or np.isfinite(upper).any():
            kinks = "coordinates"
        flat: Any = {
            "ridge": ridge,
            "l1": l1,
            "lower": lower,
            "upper": upper,
            "group": group,
            "weight": weight,
        }
        return FlatRegularizer(**flat, groups=groups, kinks=kinks, proximal=proximal)


AnyRegularizer = Regularizer | AnySet


def as_regularizer(given: Any) -> Regularizer:
    """A regulariser unchanged, a set of `fp.sets` as its indicator function. Raises TypeError for anything else."""
    if isinstance(given, Regularizer):
        return given
    if isinstance(given, ConvexSet | Both):
        return Regularizer((Part("set", (), getattr(given, "on", None), operator=given),))
    raise TypeError(f"regularizer= takes fp.l1, fp.l2, fp.box, fp.group, fp.prox or a set of fp.sets, not {given!r}")


def l2(weight: float, on: str | Sequence[str] | None = None) -> Regularizer:
    """The squared Euclidean norm weight · ‖w‖² (without a factor ½), as a regulariser.

    - `weight`: >= 0 and finite, in units of the objective per squared parameter.
    - `on`: the name or names of the parameters w (default None: all of them).

    Returns a `Regularizer`; add several: `fp.l2(0.01) + fp.box(-1, 1, on="w")`. Raises ValueError for an invalid weight.
    """
    return Regularizer((Part("l2", (_weight(weight, "l2"),), parameter_names(on)),))


def l1(weight: float, on: str | Sequence[str] | None = None) -> Regularizer:
    """The l1 norm weight · ‖w‖₁ as a regulariser, for sparse parameters.

    - `weight`: >= 0 and finite, in units of the objective per parameter.
    - `on`: the name or names of the parameters w (default None: all of them).

    Returns a `Regularizer`. Raises ValueError for an invalid weight.
    """
    return Regularizer((Part("l1", (_weight(weight, "l1"),), parameter_names(on)),))


def box(lower: float = -math.inf, upper: float = math.inf, on: str | Sequence[str] | None = None) -> Regularizer:
    """Bounds lower <= w <= upper on every entry of the parameters, as a regulariser (its indicator function).

    - `lower`, `upper`: numbers with lower < upper (defaults −∞ and ∞).
    - `on`: the name or names of the parameters w (default None: all of them).

    Returns a `Regularizer`. Raises ValueError where lower >= upper. For bounds on each party's own model see `fp.sets.box`.
    """
    if not (_real(lower) and _real(upper) and lower < upper):
        raise ValueError(f"fp.box({lower!r}, {upper!r}): two numbers, the lower bound below the upper one")
    return Regularizer((Part("box", (float(lower), float(upper)), parameter_names(on)),))


def group(weight: float, groups: Sequence[Sequence[int]] | None = None, on: str = "w") -> Regularizer:
    """The group-lasso norm weight · Σ_g ‖w_g‖₂ as a regulariser, which selects or drops groups of features together.

    - `weight`: >= 0 and finite, in units of the objective per parameter.
    - `groups`: lists of features, that is, of rows of the parameter `on`, counted from 0 and disjoint: `[[0, 1], [2]]`;
      features in no group are not regularised (default None: each feature is a group).
    - `on`: the name of one parameter, (features,) or (features, outputs) (default "w").

    Returns a `Regularizer`, which may be added to `fp.l2` only. Raises ValueError or TypeError where an argument is not of this
    form.
    """
    listed = None
    if groups is not None:
        try:
            listed = tuple(tuple(operator.index(i) for i in g) for g in groups)
        except TypeError:
            raise TypeError(f"fp.group(groups={groups!r}): lists of features, such as [[0, 1], [2]]") from None
        members = [i for g in listed for i in g]
        if not members or len(members) != len(set(members)) or not all(listed):
            raise ValueError("fp.group: every group has at least one feature, and no feature is in two groups")
    if not isinstance(on, str):
        raise TypeError(f"fp.group(on={on!r}): the name of one parameter")
    return Regularizer((Part("group", (_weight(weight, "group"),), (on,), listed),))


def prox(
    fn: Callable[[Any, Any], Any], value: Callable[[Any], Any], on: str | Sequence[str] | None = None
) -> Regularizer:
    """Any convex h(params) with a known proximal operator, as a regulariser.

    - `fn`: `(params, step) -> params` in JAX, argmin_v step · h(v) + ‖v − params‖²/2; `step` is a scalar >= 0, and with 0 it is
      the nearest point where h is finite.
    - `value`: `params -> h(params)`, a scalar in JAX; read where h is finite only.
    - `on`: the name of the parameters that both functions get (default None: the whole tree; several names: a dictionary).

    Returns a `Regularizer`, which may be added to `fp.l2` on all parameters, and to others on different parameters. Raises
    TypeError where an argument is not of this form; whether the two functions fit the parameters and each other is tried when
    a problem is solved. docs/stating.md says how the certificate measures it.

        def shrink(w, step):  # of 0.1 ‖w‖₂
            return w * jnp.maximum(1 - 0.1 * step / jnp.maximum(jnp.linalg.norm(w), 1e-30), 0)

        fp.prox(shrink, lambda w: 0.1 * jnp.linalg.norm(w), on="w")
    """
    if not callable(fn) or not callable(value):
        raise TypeError("fp.prox(fn, value): two functions, (params, step) -> params and params -> number")
    names = parameter_names(on)
    return Regularizer((Part("prox", (), names, operator=Operator(fn, value, names)),))


def _real(number: Any) -> bool:
    return isinstance(number, numbers.Real) and not isinstance(number, bool)


def _weight(weight: float, name: str) -> float:
    if not (_real(weight) and 0 <= weight < math.inf):
        raise ValueError(f"fp.{name}({weight!r}): the weight must be a finite number >= 0")
    return float(weight)


def _selection(params: Any, on: tuple[str, ...] | None) -> np.ndarray:
    leaves = leaf_names(params)
    known = [name for name, _ in leaves]
    for name in on or ():
        if name not in known:
            raise ValueError(f"a regulariser is on {name!r}, but the parameters are {', '.join(known)}")
    each = [np.full(np.size(leaf), on is None or name in on) for name, leaf in leaves]
    return np.concatenate([np.zeros(0, bool), *each])


def _group_numbers(params: Any, part: Part) -> tuple[np.ndarray, int]:
    chosen = _selection(params, part.on)
    (on,) = part.on or ("",)
    leaf, *others = [leaf for name, leaf in leaf_names(params) if name == on]
    if others or not np.ndim(leaf):
        actual = f"{1 + len(others)} parameters" if others else "a single number"
        raise ValueError(f"fp.group is on {on!r}, which is {actual}; it takes one array, with a row for each feature")
    features = np.shape(leaf)[0]
    listed = part.groups or tuple((i,) for i in range(features))
    of_feature = np.full(features, -1)
    for number, members in enumerate(listed):
        for feature in members:
            if not 0 <= feature < features:
                raise ValueError(f"fp.group names feature {feature}, but {on!r} has {features}")
            of_feature[feature] = number
    numbers = np.full(chosen.size, -1)
    numbers[chosen] = np.repeat(of_feature, np.size(leaf) // features)
    return numbers, len(listed)
