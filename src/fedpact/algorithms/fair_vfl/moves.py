"""What the server makes of the moves that parties propose."""

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from fedpact.algorithms.fair_vfl.lagrangian import Dual, Point, least, merit
from fedpact.algorithms.fair_vfl.parties import Move, remembered, united
from fedpact.algorithms.parts.descent import choose
from fedpact.protocol.messages import Reply
from fedpact.protocol.network import Network

if TYPE_CHECKING:
    from fedpact.algorithms.fair_vfl.method import FairVFL, Server

SHORTER, LONGER = 2.0, 1.15  # how curvature estimates grow after a refused move and fall after a taken one


def made(
    method: "FairVFL",
    server: "Server",
    net: Network,
    dual: Dual,
    top_slope: jax.Array,
    replies: list[Reply | None],
) -> "Server":
    """The point after the moves that active and passive parties proposed."""
    given = [united(r, net.parties) if r else jnp.zeros_like(server.point.embedded) for r in replies]
    products = [r.sum[1].products if r else jnp.zeros((2 + method.memory,) * 2) for r in replies]
    take = _searched if method.searches else _tried
    return take(method, server, net, dual, top_slope, given, products)


def _searched(
    method: "FairVFL",
    server: "Server",
    net: Network,
    dual: Dual,
    top_slope: jax.Array,
    given: list[jax.Array],
    products: list[jax.Array],
) -> "Server":
    """The best of active moves, passive ones, the last ones and a move of the top, in h alone."""

    def change(a: jax.Array) -> jax.Array:
        return a[0] * given[0] + a[1] * given[1] + jnp.tensordot(a[3:], server.drift, 1)

    def there(a: jax.Array) -> Point:
        one, again = jnp.ones(1), a[3:]
        mixed = [jnp.concatenate([one, along[None], again]) for along in (a[0], a[1])]
        norms = [v @ g @ v for v, g in zip(mixed, products, strict=True)]
        return Point(
            server.point.top - a[2] * top_slope + again @ server.top_last,
            server.point.embedded + change(a),
            norms[0] + norms[1],
        )

    a = least(lambda a: merit(method.known, net.server, dual, there(a)), jnp.zeros(3 + method.memory))
    point = there(a)
    return dataclasses.replace(
        server,
        point=point,
        top_last=remembered(server.top_last, point.top - server.point.top),
        drift=remembered(server.drift, change(a)),
        moves=(Move(a[0], a[3:]), Move(a[1], a[3:])),
    )


def _tried(
    method: "FairVFL",
    server: "Server",
    net: Network,
    dual: Dual,
    top_slope: jax.Array,
    given: list[jax.Array],
    products: list[jax.Array],
) -> "Server":
    """The proposed move where it lowers the merit (a given step: in any case), else none, and a shorter one next."""
    ones = jnp.ones(2)
    step = (
        -method.step * top_slope
        if method.step is not None
        else method.momentum * server.top_last[0] - top_slope / server.curvature
    )
    norm = ones @ (products[0] + products[1])[:2, :2] @ ones
    point = Point(server.point.top + step, given[0] + given[1], norm)
    if method.step is not None:
        taken = jnp.asarray(True)
    else:
        here, new = (merit(method.known, net.server, dual, at) for at in (server.point, point))
        taken = new <= here
    move = Move(jnp.where(taken, 1.0, 0.0), jnp.zeros(method.memory))
    return dataclasses.replace(
        server,
        point=choose(taken, point, server.point),
        top_last=remembered(server.top_last, jnp.where(taken, step, jnp.zeros_like(step))),
        moves=(move, move),
        taken=taken,
        curvature=jnp.where(taken, server.curvature / LONGER, SHORTER * server.curvature),
    )
