"""One model for each party, in a set of its own: problem (1) of the PC-FedAvg paper.

    minimise over x_1, …, x_m    (1/m) Σ_i [ f_i(x̄) + (σ_i/2) ‖x_i − x̄‖² ]        s.t.  x_i ∈ X_i,        x̄ = (1/m) Σ_i x_i

The objective is taken at the average model x̄, as the paper has it; the pull σ_i holds a party's model near it. X_i and σ_i are
the party's own data, as its rows are.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fedpact.problem.own_sets import OwnSet, on_flat
from fedpact.problem.sets import AnySet, Both, ConvexSet


class Own(eqx.Module):
    """What one party keeps to itself: its set, and how strongly its model is pulled to the mean."""

    region: OwnSet
    pull: jax.Array

    def project(self, x: jax.Array) -> jax.Array:
        return self.region.project(x)

    def outside(self, x: jax.Array) -> jax.Array:
        """x − Π(x): the gradient of dist(x, X_i)²/2."""
        return x - self.region.project(x)

    def distance(self, x: jax.Array) -> jax.Array:
        return jnp.linalg.norm(self.outside(x))

    def cost(self, x: jax.Array, mean: jax.Array) -> jax.Array:
        """(σ_i/2) ‖x − x̄‖²."""
        return 0.5 * self.pull * jnp.sum((x - mean) ** 2)


@dataclasses.dataclass(frozen=True, eq=False)
class Personal:
    """A set and a pull for every party: lists in the order of the parties, mappings by their names, one for all, or a function
    of a party's name: in a deployed run each party calls it at home, so that its set can be in a file of its own.

    - `sets`: where each party's model must lie, such as fp.l1_ball(20) or another of `fp.sets`.
    - `pull`: σ_i > 0, the weight of ‖x_i − x̄‖²/2.
    """

    sets: AnySet | Sequence[AnySet] | Mapping[str, AnySet] | Callable[[str], AnySet]
    pull: float | Sequence[float] | Mapping[str, float] | Callable[[str], float]

    def __post_init__(self) -> None:
        for place, given in _items(self.sets):
            if not isinstance(given, ConvexSet | Both):
                raise TypeError(f"Personal(sets=...): {place} is {given!r}, not a set such as fp.l1_ball(20)")
        for place, given in _items(self.pull):
            if isinstance(given, bool) or not isinstance(given, int | float | np.number) or not 0 < given < np.inf:
                raise ValueError(f"Personal(pull=...): {place} is {given!r}; the pull σ is a finite number > 0")

    def by_party(self, names: Sequence[str], params: Any) -> list[Own]:
        """What each of these parties keeps, for parameters of this shape."""
        if _is_function(self.sets) or _is_function(self.pull):
            return [self.of_party(name, names, params) for name in names]
        sets, pulls = _dealt("sets", self.sets, names), _dealt("pull", self.pull, names)
        out, flat = [], {}
        for name, region, pull in zip(names, sets, pulls, strict=True):
            try:
                flat[id(region)] = flat.get(id(region)) or on_flat(region, params)
            except ValueError as error:
                raise ValueError(f"the set of party {name!r}: {error}") from None
            weight: Any = np.asarray(float(pull))
            out.append(Own(flat[id(region)], weight))
        return out

    def of_party(self, name: str, names: Sequence[str], params: Any) -> Own:
        """What one of these parties keeps; nobody else's set is looked at."""
        region, pull = (_of_one(given, name, names) for given in (self.sets, self.pull))
        return Personal({name: region}, {name: pull}).by_party([name], params)[0]

    def like(self, region: AnySet, params: Any) -> Own:
        """What a party may keep that has this set."""
        return Personal(region, 1.0).by_party(["any"], params)[0]


def kinds(order: tuple[tuple[int, ...], ...], owned: Sequence[Own]) -> tuple[tuple[int, ...], ...]:
    """Buckets divided further, so that the sets of one bucket differ in numbers alone."""
    out = []
    for bucket in order:
        alike: dict[Any, list[int]] = {}
        for i in bucket:
            leaves, tree = jax.tree.flatten(owned[i])
            alike.setdefault((tree, tuple(leaf.shape for leaf in leaves)), []).append(i)
        out += [tuple(mine) for mine in alike.values()]
    return tuple(out)


def together(owned: Sequence[Own]) -> Own:
    """Those of one bucket, with a leading party axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *owned)


def _of_one(given: Any, name: str, names: Sequence[str]) -> Any:
    if _is_function(given):
        return given(name)
    return _dealt("sets", given, names)[list(names).index(name)]


def _is_function(given: Any) -> bool:
    return callable(given) and not isinstance(given, ConvexSet | Both)


def _items(given: Any) -> list[tuple[str, Any]]:
    if _is_function(given):
        return []  # looked at when it is called
    if isinstance(given, Mapping):
        return [(f"that of {name!r}", one) for name, one in given.items()]
    if isinstance(given, list | tuple | np.ndarray):
        return [(f"number {place + 1}", one) for place, one in enumerate(given)]
    return [("it", given)]


def _dealt(field: str, given: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"Personal({field}=...) names {unknown[0]!r}, but the parties are {', '.join(map(str, names))}"
            )
        missing = [name for name in names if name not in given]
        if missing:
            raise ValueError(
                f"Personal({field}=...) has none for party {missing[0]!r}; fp.sets.everywhere() is no restriction"
            )
        return [given[name] for name in names]
    if isinstance(given, list | tuple | np.ndarray):
        if len(given) != len(names):
            raise ValueError(
                f"Personal({field}=...) has {len(given)} for {len(names)} parties; give one for each, in their order, or a "
                "mapping by name"
            )
        return list(given)
    return [given] * len(names)
