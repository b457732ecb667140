"""What one exchange costs beside its arithmetic: a round that adds d numbers over n parties, by each driver."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import fedpact as fp
from fedpact.engines.local import LocalNetwork
from fedpact.protocol.algorithm import Answer, Begin, Goal, Info, OnePhase, Status
from fedpact.protocol.messages import Reply
from fedpact.protocol.phases import ServerData
from fedpact.run import drivers
from fedpact.settings import bind

N, D, ROUNDS = 20, 20, 2048


class State(eqx.Module):
    w: jax.Array


class Bare(OnePhase[State]):
    """Every party adds its index to the message; the server averages."""

    def join(self, own: Any, state: None, message: Any) -> tuple[jax.Array, Reply]:
        return message.parameters, Reply()

    def start(self, own: ServerData, begin: Begin, reply: Reply) -> State:
        return State(begin.w)

    def ask(self, own: ServerData, server: State) -> jax.Array:
        return server.w

    def step(self, own: Any, state: jax.Array, message: jax.Array) -> tuple[jax.Array, Reply]:
        return state + message, Reply(sum=message + own.index)

    def hear(self, own: ServerData, server: State, reply: Reply) -> tuple[State, Info]:
        w = reply.sum / own.parties
        return State(w), Info(w[0], w[1], w[2])

    def status(self, server: State) -> jax.Array:
        return Status.running.as_array()

    def answer(self, own: ServerData, carry: State) -> Answer:
        return Answer(carry.w, jnp.zeros(0), jnp.zeros(0), jnp.zeros(()))


def measure() -> str:
    with jax.enable_x64(True):
        table = fp.Table(x=np.zeros((N, D)), y=np.zeros(N, int))
        problem = fp.minimize(fp.mean(fp.logistic_loss(fp.linear())))
        bound = bind(problem, fp.split_rows(table, parties=N))
        network, own, method = LocalNetwork.of(bound), bound.server_data, Bare()
        goal = Goal(jnp.asarray(0.0), jnp.asarray(0.0))
        server, parties = drivers.begin(method, network, own, bound.start, goal, 0)

        def chunked() -> None:
            s, p = server, parties
            for _ in range(ROUNDS // drivers.CHUNK):
                s, p, _, _, lines = drivers.rounds(method, network, own, s, p, jnp.asarray(drivers.CHUNK))
                jax.device_get(lines)

        def fused() -> None:
            jax.block_until_ready(drivers.rounds(method, network, own, server, parties, jnp.asarray(ROUNDS)))

        def stepwise() -> None:
            s, p = server, parties
            for _ in range(ROUNDS // 8):
                s, p, line = drivers.step(method, network, own, s, p)
                jax.device_get(line)

        def per_round(run: Any, rounds: int) -> float:
            run()
            times = []
            for _ in range(5):
                began = time.perf_counter()
                run()
                times.append(time.perf_counter() - began)
            return 1e6 * min(times) / rounds

        figures = per_round(chunked, ROUNDS), per_round(fused, ROUNDS), per_round(stepwise, ROUNDS // 8)
    return (
        "## Overhead of an exchange\n\n"
        f"A round of one exchange that only adds, n = {N} parties, d = {D}, history handed out except by fused.\n\n"
        "| driver | µs per exchange |\n|---|---|\n"
        f"| chunked (default) | {figures[0]:.1f} |\n| fused | {figures[1]:.1f} |\n| stepwise | {figures[2]:.1f} |\n"
    )
