"""Smooth rates begin soft and are sharpened as the run proceeds.

A rate sigmoid(score/T) of small T is nearly a step: from afar it shows neither slope nor curvature, and a step that is right
near one row's threshold is wrong beyond it. So the temperatures of all rates are multiplied by a softening, large at first.
A problem that is roughly solved is sharpened and solved again from there, with slacks and multipliers as they are, which takes
a few rounds; one that is not solved within some rounds is given up for a less sharp one, from where the last one was solved.
Where none was solved yet, the softest one is tried, from the start. Temperatures of 1 and above are softened only then.
A softened rate has less slope, and so it begins with multipliers that are larger and slacks that are smaller by the softening.
The last softening is 1: what is certified has the temperatures of the problem.
"""

import dataclasses
from typing import Any

import jax

from fedpact.algorithms.interior_point.barrier import Barrier
from fedpact.arrays import choose, xp
from fedpact.records import Record

FIRST = 2.0  # the temperature at which the sharpest rate begins
FACTOR = 0.5  # of a sharpening,
GENTLE = 0.95  # or the square root of the last one after it has failed, unless that is above this
ROUNDS = 7  # at one softening before it is given up,
FIRST_ROUNDS = 25  # or so many where none was solved yet
QUICK = 2  # a sharpening that took more rounds than this is not followed by a bolder one
SOFTEST = (
    4.0  # times the first softening is tried where that is not solved: if even this is not, another would not help
)
RELAXED = 2.0  # times the violation that is aimed at, half of the tolerance: where the path of solutions has an end


class Best(Record):
    """What would be handed out: the feasible point with the lowest objective, or else the least violated one."""

    point: jax.Array
    objective: jax.Array
    violation: jax.Array
    server_multipliers: jax.Array
    pooled_multipliers: jax.Array


class Anchor(Record):
    """Where the problem was last solved: the parameters, the server's own and the pooled constraints."""

    point: jax.Array
    own: Barrier
    pooled: Barrier


class Sharpening(Record):
    softening: jax.Array
    first: jax.Array  # softening, or what it would be if rates of their temperatures were softened at first
    factor: jax.Array  # of the last sharpening
    rounds: jax.Array  # at this softening
    anchor: Anchor
    has_anchor: jax.Array
    anchored: jax.Array  # whether the last trial is the anchor
    returning: jax.Array  # whether the next round begins at the anchor
    again: jax.Array  # whether the next round evaluates where it begins, as it is
    stated: Best  # with the rates as they are stated
    relaxation: jax.Array  # by how much limits are moved outwards

    def noted(self, best: Best, goal: jax.Array, final: jax.Array) -> "Sharpening":
        """With the best point of this stage, where its rates are as they are stated; `final`: it is what the run ends with."""
        feasible, seen = best.violation <= goal, self.stated.violation <= goal
        better = xp.where(
            seen, feasible & (best.objective < self.stated.objective), best.violation < self.stated.violation
        )
        return dataclasses.replace(self, stated=choose((self.softening == 1.0) & (better | final), best, self.stated))


class Change(Record):
    """What happens to the rates after a round.

    - `sharper`, `softer`: which way they change, if at all.
    - `again`: the next round evaluates the last trial, or the anchor, with the new rates.
    - `afresh`, `from_start`: the next round begins with new slacks, at the best point or at the first parameters.
    - `searching`: the next round goes on with a search for a feasible point, where the last one ended, divided by the old
      softening: there rates of linear scores are what they were.
    """

    sharper: jax.Array
    softer: jax.Array
    again: jax.Array
    afresh: jax.Array
    from_start: jax.Array
    searching: jax.Array

    @property
    def any(self) -> jax.Array:
        return self.sharper | self.softer

    @classmethod
    def none(cls) -> "Change":
        no = xp.asarray(False)
        return cls(no, no, no, no, no, no)


def at_first(coldest: Any, anchor: Anchor, nothing: Best) -> Sharpening:
    """`coldest`: the least temperature of a rate."""
    usual, no = xp.maximum(FIRST / coldest, 1.0), xp.asarray(False)
    softening = xp.where(coldest < 1.0, usual, 1.0)
    return Sharpening(
        softening, usual, xp.asarray(FACTOR), xp.zeros((), int), anchor, no, no, no, no, nothing, xp.asarray(0.0)
    )


def changed(
    now: Sharpening,
    solved: jax.Array,
    ended: jax.Array,
    failed: jax.Array,
    give_up: jax.Array,
    empty: jax.Array,
    searching: jax.Array,
    goal: jax.Array,
    trial: Anchor,
) -> tuple[Sharpening, Change]:
    """After a round.

    - `solved`: whether the trial roughly solves the problem with these rates.
    - `ended`: whether the run would end here, however. `failed`: whether it does not get on.
    - `give_up`: whether that is because no feasible point seems near, so that a search for one begins. `empty`: whether such a
      search has ended without one.
    - `searching`: whether it is searching for a feasible point, which takes its time.
    - `goal`: the violation that it aims at.
    """
    softest = now.softening >= xp.where(now.first > 1.0, SOFTEST, 1.0) * now.first
    # a soft problem that cannot be solved tells nothing of the sharp one, but where it has no feasible point a softer one
    # has none either
    first_try = ~now.has_anchor & (give_up | empty)
    at_softest = ~now.has_anchor & softest & (ended | failed) & ~give_up
    straight = (now.softening > 1.0) & (empty | at_softest)
    sharper = ((now.softening > 1.0) & (solved | (ended & now.has_anchor))) | straight
    long = ~searching & (now.rounds >= xp.where(now.has_anchor, ROUNDS, FIRST_ROUNDS))
    softer = ~sharper & ~solved & (ended | failed | long) & (now.factor < GENTLE)
    softer = softer & (now.has_anchor | ~softest) & ~first_try
    # the path ends where a limit can be met in the limit of large parameters only: 0.95 of 20 rows without one of them
    at_its_end = ~sharper & ~searching & now.has_anchor & (now.softening > 1.0) & (now.factor >= GENTLE)
    at_its_end = at_its_end & (now.rounds >= FIRST_ROUNDS) & (now.relaxation == 0.0)
    softer = softer | at_its_end
    # what was searched for with the stated rates gets twice as many rounds
    after_search = xp.where(now.softening > 1.0, 0, -FIRST_ROUNDS)
    quick = now.rounds <= QUICK
    factor, gentler = xp.where(quick, xp.maximum(now.factor**1.5, FACTOR), now.factor), xp.sqrt(now.factor)
    back = xp.where(now.has_anchor, now.softening / gentler, SOFTEST * now.first)
    ahead = xp.where(straight, 1.0, xp.maximum(factor * now.softening, 1.0))
    softening = xp.where(softer, back, xp.where(sharper, ahead, now.softening))
    # where the last problem is roughly solved, or there is no softer one, the rest is a matter of rounds
    kept = xp.where(solved | straight, 1.0, now.factor)
    anchored, returning = sharper & solved, softer & now.has_anchor
    after = Sharpening(
        softening=softening,
        first=now.first,
        factor=xp.where(softer & now.has_anchor, gentler, xp.where(sharper & ~straight, ahead / now.softening, kept)),
        rounds=xp.where(sharper | softer, 0, xp.where(searching, after_search, now.rounds + 1)),
        anchor=choose(anchored, trial, now.anchor),
        has_anchor=now.has_anchor | anchored,
        anchored=anchored,
        returning=returning,
        again=anchored | returning,
        stated=now.stated,
        relaxation=xp.where(at_its_end, RELAXED * goal, now.relaxation),
    )
    afresh = (sharper & ~solved) | (softer & ~now.has_anchor)
    return after, Change(sharper, softer, after.again, afresh, softer & ~now.has_anchor, straight & empty)
