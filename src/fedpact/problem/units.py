"""Units: what a problem's parameters, objective and constraints are measured in, so that cents or dollars make no difference.

u = w / parameters        f(w) / objective        c(w) / constraints
"""

import dataclasses
from typing import Any

import jax

from fedpact.arrays import xp
from fedpact.records import Record


class HolderUnits(Record):
    """The units of the functions of one holder.

    - `parameters`: (d,). `objective`: a scalar.
    - `constraints`: of its own scalar constraints. `pooled_constraints`: of the pooled ones.
    """

    parameters: jax.Array
    objective: jax.Array
    constraints: jax.Array
    pooled_constraints: jax.Array


class Units(Record):
    """The units of a problem, all > 0.

    - `parameters`: (d,), of each parameter.
    - `objective`: a scalar.
    - `party_constraints`, `server_constraints`, `pooled_constraints`: of the scalar constraints of each scope.
    """

    parameters: jax.Array
    objective: jax.Array
    party_constraints: jax.Array
    server_constraints: jax.Array
    pooled_constraints: jax.Array

    @classmethod
    def ones(cls, parameters: int, party: int, server: int, pooled: int) -> "Units":
        """The problem's own units."""
        return cls(xp.ones(parameters), xp.ones(()), xp.ones(party), xp.ones(server), xp.ones(pooled))

    def at(self, w: jax.Array, objective: Any) -> "Units":
        """The same, with the unit of the objective at least its value at w per unit of the largest parameter."""
        reach = xp.maximum(xp.max(xp.abs(w / self.parameters), initial=0.0), 1.0)
        return dataclasses.replace(self, objective=xp.maximum(self.objective, objective / reach))

    @property
    def of_party(self) -> HolderUnits:
        return HolderUnits(self.parameters, self.objective, self.party_constraints, self.pooled_constraints)

    @property
    def of_server(self) -> HolderUnits:
        return HolderUnits(self.parameters, self.objective, self.server_constraints, self.pooled_constraints)
