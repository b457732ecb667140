"""Step sizes that fall with the rounds."""

import abc

import equinox as eqx
import jax

from fedpact.protocol.options import check


class Schedule(eqx.Module):
    """A step size for round t = 1, 2, …"""

    @abc.abstractmethod
    def __call__(self, t: jax.Array) -> jax.Array: ...


class Decay(Schedule):
    """scale / t^power, with scale > 0 and power >= 0; power 0 is a constant step."""

    scale: float
    power: float = 0.0

    def __check_init__(self) -> None:
        check("Decay", "scale", self.scale, lambda x: x > 0, "a step size scale/t^power has scale > 0")
        check("Decay", "power", self.power, lambda x: x >= 0, "a step size scale/t^power has power >= 0")

    def __call__(self, t: jax.Array) -> jax.Array:
        return self.scale / t**self.power


def as_schedule(owner: str, name: str, step: Schedule | float) -> Schedule:
    """A number is a constant step size."""
    if isinstance(step, Schedule):
        return step
    check(
        owner, name, step, lambda x: x > 0, "a step size is a positive number, or a schedule such as fp.Decay(1.0, 0.5)"
    )
    return Decay(float(step))
