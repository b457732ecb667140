"""Verdicts judged from outside: problems that fedpact solves, and independent solvers that say whether its verdict is right.

`make campaign` runs all of them. For tests: `sample(60)` is a fixed list of small problems that need no IPOPT, and
`attempt(case)` runs fedpact on one of them and judges it.
"""

from campaign.choice import sample
from campaign.families import problems
from campaign.runner import Record, attempt
from campaign.statement import Case

__all__ = ["Case", "Record", "attempt", "problems", "sample"]
