"""FedBCD: vertical learning without constraints, every party with several steps of its own between two rounds.

    Y. Liu et al., FedBCD: A communication-efficient collaborative learning framework for distributed features, IEEE
    Transactions on Signal Processing 70 (2022).

It is FairVFL of a problem without constraints in which passive parties, too, take their steps, with ν as it was.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax

from fedpact.algorithms.fair_vfl.method import FairVFL, RoundInfo, Server
from fedpact.algorithms.fair_vfl.pace import Clock, Pace
from fedpact.algorithms.parts.batches import check_free
from fedpact.federation.blocks import Block
from fedpact.federation.setting import Setting
from fedpact.privacy.residuals import EncryptedResiduals
from fedpact.problem.oracle import Oracle
from fedpact.protocol.algorithm import Answer, ColumnAlgorithm, Goal
from fedpact.protocol.network import Network, PartyStates


class FedBCD(ColumnAlgorithm[Server]):
    """Block coordinate descent over split columns, without constraints.

    local_steps: Q, steps of a party in a round (default 5); active parties' as `pace` says.
    step: a fixed step (default None: from the curvature, as FairVFL does; passive parties then take one step).
    pace, clock, momentum, privacy: as of fp.FairVFL.
    """

    local_steps: int = 5
    step: float | None = None
    pace: Pace = "fixed"
    clock: Clock = Clock()
    momentum: float = 0.9
    privacy: EncryptedResiduals | None = eqx.field(static=True, default=None)
    core: FairVFL | None = eqx.field(default=None, repr=False)

    def __check_init__(self) -> None:
        self._composed()

    def _composed(self) -> FairVFL:
        try:
            return FairVFL(
                local_steps=self.local_steps,
                pace=self.pace,
                clock=self.clock,
                step=self.step,
                momentum=self.momentum,
                privacy=self.privacy,
                passive_steps=self.local_steps if self.step is not None else 1,
            )
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("FairVFL", "FedBCD")) from None

    def prepared(self, setting: Setting) -> "FedBCD":
        if not setting.columns:
            raise ValueError("FedBCD is for parties who hold columns: fp.split_columns; over rows use fp.FedAvg()")
        check_free("FedBCD", setting)
        return dataclasses.replace(self, clock=Clock(), core=self._composed().prepared(setting))

    @property
    def made(self) -> FairVFL:
        assert self.core is not None  # `prepared` has made it
        return self.core

    def init(self, net: Network, w: jax.Array, goal: Goal, key: jax.Array) -> tuple[Server, PartyStates]:
        return self.made.init(net, w, goal, key)

    def round(self, server: Server, parties: PartyStates, net: Network) -> tuple[Server, PartyStates, RoundInfo]:
        return self.made.round(server, parties, net)

    def status(self, server: Server) -> jax.Array:
        return self.made.status(server)

    def answer(self, server: Server, net: Network) -> Answer:
        return self.made.answer(server, net)

    def multipliers(self, own: Oracle, state: Any, answer: Answer) -> jax.Array:
        return self.made.multipliers(own, state, answer)

    def block(self, own: Block, state: Any, answer: Answer) -> jax.Array:
        return self.made.block(own, state, answer)

    def aim(self, server: Server, goal: Goal) -> Server:
        return self.made.aim(server, goal)
