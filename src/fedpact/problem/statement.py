"""A problem: objective, constraints and regulariser, without a word on who holds which rows."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from fedpact.problem.atoms import Atom, Scope
from fedpact.problem.expressions import Constraint, Expression, as_expression
from fedpact.problem.losses import Loss
from fedpact.problem.models import Model
from fedpact.problem.personal import Personal
from fedpact.problem.regularizers import Regularizer


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """minimise objective + h(params) subject to the constraints. Made by `fp.minimize`."""

    objective: Expression
    constraints: tuple[Constraint, ...]
    regularizer: Regularizer
    personal: Personal | None = None

    @property
    def public(self) -> tuple[Any, ...]:
        """What everybody may know of it: all but the parties' own sets and pulls."""
        return self.objective, self.constraints, self.regularizer, self.personal is not None

    @property
    def model(self) -> Model | None:
        """The model that the losses share; None where the problem is stated in plain functions only."""
        models = {loss.model for loss in self.losses}
        if len(models) > 1:
            raise ValueError(
                f"the problem's losses use {len(models)} different models; one set of parameters is trained, so give "
                "every loss the same model"
            )
        return models.pop() if models else None

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Every loss that the problem reads, once."""
        return tuple(dict.fromkeys(atom.loss for atom, _ in self.atoms() if atom.loss is not None))

    def atoms(self) -> tuple[tuple[Atom, Scope], ...]:
        """What objective and constraints evaluate, and over which rows."""
        expressions = [self.objective, *(c.expression for c in self.constraints)]
        return tuple(atom for expression in expressions for atom in expression.atoms())

    def __str__(self) -> str:
        lines = [f"minimise {self.objective}{' + h' if self.regularizer.parts else ''}"]
        lines += [
            f"    s.t. {c.name}: {c} ({c.scope})" if c.given_name else f"    s.t. {c} ({c.scope})"
            for c in self.constraints
        ]
        if self.personal is not None:
            lines.append("    at the average of the parties' own models, each near it and in its party's own set")
        return "\n".join(lines)


def minimize(
    objective: Expression | Callable[[Any, Any], Any],
    subject_to: Iterable[Constraint] = (),
    regularizer: Regularizer | None = None,
    personal: Personal | None = None,
) -> Problem:
    """State a problem.

    objective: the parties' values are averaged; `.pooled()` takes it over all rows, `.at_server()` on the server's.
    subject_to: constraints, each at every party unless `.pooled()` or `.at_server()`.
    regularizer: fp.l1, fp.l2, fp.box, fp.group, or a sum of them.
    personal: fp.Personal(sets, pull), where every party has a model of its own in a set of its own; objective and fp.l2 are
        then taken at the average of these models.
    """
    if isinstance(subject_to, Constraint):
        subject_to = [subject_to]
    if not isinstance(subject_to, Iterable):
        raise TypeError(f"subject_to= takes a list of constraints such as [fp.mean(loss) <= 0.2], not {subject_to!r}")
    constraints = []
    taken: set[str] = set()
    for place, constraint in enumerate(subject_to, start=1):
        if not isinstance(constraint, Constraint):
            raise TypeError(
                f"subject_to[{place - 1}] is {constraint!r}, not a constraint; write fp.mean(loss) <= 0.2, say"
            )
        constraint.inequalities()  # an abs on the wrong side is told here, where it was written
        _ = constraint.scope
        if constraint.given_name in taken:
            raise ValueError(f"two constraints are named {constraint.given_name!r}; names must differ")
        if constraint.name in taken:
            constraint = constraint.named(f"{constraint.name} (#{place})")
        taken.add(constraint.name)
        constraints.append(constraint)
    if regularizer is not None and not isinstance(regularizer, Regularizer):
        raise TypeError(f"regularizer= takes fp.l1, fp.l2, fp.box or fp.group, not {regularizer!r}")
    goal = as_expression(objective)
    if not goal.is_smooth:
        raise ValueError(
            f"the objective {goal} has a corner at abs(...) or largest(...); bound that by a constraint instead"
        )
    if personal is not None:
        _check_personal(personal, goal, constraints, regularizer or Regularizer())
    return Problem(goal, tuple(constraints), regularizer or Regularizer(), personal)


def _check_personal(personal: Any, goal: Expression, constraints: list[Constraint], regularizer: Regularizer) -> None:
    if not isinstance(personal, Personal):
        raise TypeError(f"personal= takes fp.Personal(sets, pull), not {personal!r}")
    if constraints:
        raise ValueError(
            f"subject_to= has {constraints[0].name!r} beside personal=; where every party has a model of its own, what it must "
            "keep is its set: state it as one of personal's sets, or leave personal= out"
        )
    if regularizer.even is None:
        raise ValueError(
            "beside personal= the regulariser is fp.l2(a) on all parameters, taken at the average model; bounds and "
            "budgets are sets: fp.sets.box, fp.l1_ball"
        )
    if any(term.scope == "server" for term in goal.terms):
        raise ValueError("beside personal= the objective is the parties', not .at_server()")
