"""One-sided confidence bounds for means of independent rows, exact or conservative at every number of rows.

    rates, k of n                Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
                                 binomial" (Biometrika 1934): the rates at which k or more extreme counts are no rarer than error
    means x̄ of numbers in [0, 1] Hoeffding, "Probability inequalities for sums of bounded random variables" (JASA 1963),
                                 Theorem 1: the means p with n·kl(x̄, p) <= log(1/error), never wider than x̄ ± √(log(1/error)/2n)

kl(q, p) = q log(q/p) + (1-q) log((1-q)/(1-p)). Rows of different parties may follow different distributions: both bounds are
then for the average of the parties in the proportions tested (Hoeffding, "On the distribution of the number of successes in
independent trials", 1956, for the count).
"""

import math
from collections.abc import Callable

from scipy import special  # not scipy.stats, which takes longer to import than everything else here

STEPS = 60  # of a bisection: to the last digit


def rate_above(count: float, rows: float, error: float) -> float:
    """The upper bound of a rate of which `count` of `rows` were seen; too low with a probability of at most `error`."""
    return 1.0 if count >= rows else float(special.betainccinv(count + 1, rows - count, error))


def mean_above(total: float, rows: float, error: float) -> float:
    """The upper bound of a mean of numbers in [0, 1] that add up to `total`; too low with a probability of at most `error`."""
    if total >= rows:
        return 1.0
    seen, room = total / rows, math.log(1.0 / error) / rows

    def far(mean: float) -> bool:
        return special.rel_entr(seen, mean) + special.rel_entr(1.0 - seen, 1.0 - mean) > room

    return bisected(far, seen, 1.0)


def above(total: float, rows: float, error: float, is_rate: bool) -> float:
    """The upper bound of a rate or of a mean of numbers in [0, 1]; 1 where there are no rows."""
    return (rate_above if is_rate else mean_above)(total, rows, error) if rows else 1.0


def below(total: float, rows: float, error: float, is_rate: bool) -> float:
    """The lower bound, too high with a probability of at most `error`; 0 where there are no rows."""
    return 1.0 - above(rows - total, rows, error, is_rate)


def bisected(is_beyond: Callable[[float], bool], low: float, high: float) -> float:
    """The place between two numbers from which on a condition holds; `high` where it holds nowhere."""
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_beyond(middle) else (middle, high)
    return high
