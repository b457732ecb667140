"""Convex sets for the parties' own models: `fp.Personal(sets=[fp.sets.l1_ball(20), fp.sets.box(-1, 1)], pull=0.01)`.

l1_ball(r)     ‖x‖₁ <= r      nonnegative()  x >= 0           affine(A, b)     Ax = b
l2_ball(r)     ‖x‖₂ <= r      simplex(s)     x >= 0, Σx = s   halfspace(a, b)  a·x <= b
linf_ball(r)   max |x| <= r   box(lo, hi)    lo <= x <= hi    projection(fn)   the set that fn projects onto
everywhere()   all x          A & B          the intersection, where its projection is known in closed form
"""

from fedpact.problem.sets import ConvexSet as ConvexSet
from fedpact.problem.sets import affine as affine
from fedpact.problem.sets import box_set as box
from fedpact.problem.sets import everywhere as everywhere
from fedpact.problem.sets import halfspace as halfspace
from fedpact.problem.sets import l1_ball as l1_ball
from fedpact.problem.sets import l2_ball as l2_ball
from fedpact.problem.sets import linf_ball as linf_ball
from fedpact.problem.sets import nonnegative as nonnegative
from fedpact.problem.sets import projection as projection
from fedpact.problem.sets import simplex as simplex

__all__ = [
    "ConvexSet",
    "affine",
    "box",
    "everywhere",
    "halfspace",
    "l1_ball",
    "l2_ball",
    "linf_ball",
    "nonnegative",
    "projection",
    "simplex",
]
