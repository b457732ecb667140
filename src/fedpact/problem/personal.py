"""One model for each party, constrained to the party's own set: problem (1) of the PC-FedAvg paper.

    minimise over x_1, …, x_m    (1/m) Σ_i [ f_i(x̄) + (σ_i/2) ‖x_i − x̄‖² ]        s.t.  x_i ∈ X_i,        x̄ = (1/m) Σ_i x_i

The objective is evaluated at the average model x̄, as in the paper; the weight σ_i pulls a party's model towards it. X_i and σ_i
are private to the party, as its rows are.
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
    """The private part of a party's problem: its set X_i and the weight σ_i."""

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
    """One model x_i per party, in the party's own convex set X_i and close to the average model x̄.

        minimise over x_1, …, x_m    (1/m) Σ_i [ f_i(x̄) + (σ_i/2) ‖x_i − x̄‖² ]    s.t.  x_i ∈ X_i,    x̄ = (1/m) Σ_i x_i

    - `sets`: X_i, such as `fp.l1_ball(20)` or another of `fp.sets`.
    - `pull`: σ_i, the weight of ‖x_i − x̄‖²/2 (finite, > 0).

    Each of the two is one value for all parties, a sequence in the order of the parties, a mapping by party name, or a function
    of a party's name; in a deployed run every party calls the function itself, so that its set can be in a local file.

    Raises TypeError where an entry of `sets` is not a set, and ValueError where an entry of `pull` is not a finite number > 0.

        problem = fp.minimize(fp.mean(loss), personal=fp.Personal(sets=fp.l1_ball(20.0), pull=0.01))
    """

    sets: AnySet | Sequence[AnySet] | Mapping[str, AnySet] | Callable[[str], AnySet]
    pull: float | Sequence[float] | Mapping[str, float] | Callable[[str], float]

    def __post_init__(self) -> None:
        for place, region in _items(self.sets):
            if not isinstance(region, ConvexSet | Both):
                raise TypeError(f"Personal(sets=...): {place} is {region!r}, not a set such as fp.l1_ball(20)")
        for place, weight in _items(self.pull):
            if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 < weight < np.inf:
                raise ValueError(f"Personal(pull=...): {place} is {weight!r}; the pull σ is a finite number > 0")

    def by_party(self, names: Sequence[str], params: Any) -> list[Own]:
        """The set and weight of each party.

        - `names`: of all parties, in order.
        - `params`: a tree of arrays of the model's shape.

        Returns one `Own` per party. Raises ValueError where a party has no set, or its set does not fit the parameters.
        """
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
        """The set and weight of the party `name` among `names`; no other party's set is read."""
        region, pull = (_of_one(stated, name, names) for stated in (self.sets, self.pull))
        return Personal({name: region}, {name: pull}).by_party([name], params)[0]

    def like(self, region: AnySet, params: Any) -> Own:
        """The private part of a party with this set and weight 1, for tracing without private data."""
        return Personal(region, 1.0).by_party(["any"], params)[0]


def kinds(order: tuple[tuple[int, ...], ...], owned: Sequence[Own]) -> tuple[tuple[int, ...], ...]:
    """Split buckets further, so that the sets of one bucket have the same class and shapes and can be stacked."""
    out = []
    for bucket in order:
        alike: dict[Any, list[int]] = {}
        for i in bucket:
            leaves, tree = jax.tree.flatten(owned[i])
            alike.setdefault((tree, tuple(leaf.shape for leaf in leaves)), []).append(i)
        out += [tuple(places) for places in alike.values()]
    return tuple(out)


def together(owned: Sequence[Own]) -> Own:
    """The sets and weights of one bucket, stacked with a leading party axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *owned)


def _of_one(stated: Any, name: str, names: Sequence[str]) -> Any:
    if _is_function(stated):
        return stated(name)
    return _dealt("sets", stated, names)[list(names).index(name)]


def _is_function(stated: Any) -> bool:
    return callable(stated) and not isinstance(stated, ConvexSet | Both)


def _items(stated: Any) -> list[tuple[str, Any]]:
    if _is_function(stated):
        return []  # its results are checked when it is called
    if isinstance(stated, Mapping):
        return [(f"that of {name!r}", one) for name, one in stated.items()]
    if isinstance(stated, list | tuple | np.ndarray):
        return [(f"number {place + 1}", one) for place, one in enumerate(stated)]
    return [("it", stated)]


def _dealt(field: str, stated: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(stated, Mapping):
        unknown = [name for name in stated if name not in names]
        if unknown:
            raise ValueError(
                f"Personal({field}=...) names {unknown[0]!r}, but the parties are {', '.join(map(str, names))}"
            )
        missing = [name for name in names if name not in stated]
        if missing:
            raise ValueError(
                f"Personal({field}=...) has none for party {missing[0]!r}; fp.sets.everywhere() imposes no restriction"
            )
        return [stated[name] for name in names]
    if isinstance(stated, list | tuple | np.ndarray):
        if len(stated) != len(names):
            raise ValueError(
                f"Personal({field}=...) has {len(stated)} for {len(names)} parties; give one for each, in their order, or a "
                "mapping by name"
            )
        return list(stated)
    return [stated] * len(names)
