"""The plan of a run: its method traced from the first exchange to the certificate, at the server and at every party alike."""

import platform
from functools import partial
from typing import Any

import jax

from fedpact import __about__
from fedpact.certificate import measured
from fedpact.engines.exchanges import Plan
from fedpact.engines.remote import RemoteNetwork
from fedpact.federation.binding import Bound
from fedpact.federation.blocks import BoundColumns
from fedpact.protocol.algorithm import Algorithm
from fedpact.run import drivers
from fedpact.run.loop import goal_of

# What both ends need alike: a digest covers code, which differs between minor versions of Python.
VERSIONS = {"fedpact": __about__.VERSION, "Python": ".".join(platform.python_version_tuple()[:2])}


def traced(algorithm: Algorithm, net: RemoteNetwork, bound: Bound | BoundColumns) -> Plan:
    """All exchanges of a run; nothing is computed and nothing sent."""
    plan = net.link.plan
    with plan.during("begin"):
        server, parties = jax.eval_shape(partial(drivers.begin, algorithm), net, bound.start, goal_of(1.0), 0)
    with plan.during("round"):
        server, parties, _ = jax.eval_shape(partial(drivers.step, algorithm), net, server, parties)
    with plan.during("end"):
        answer, kept = jax.eval_shape(partial(drivers.conclude, algorithm), net, server, parties)
    with plan.during("certificate"):
        jax.eval_shape(partial(_certificate, bound), net, kept, answer)
    return plan


def _certificate(bound: Bound | BoundColumns, net: Any, kept: Any, answer: Any) -> Any:
    return measured(bound, net, kept, answer)
