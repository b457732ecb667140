"""A problem: objective, constraints and regulariser, independent of the data and of the parties."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from fedpact.problem.atoms import Atom, Scope
from fedpact.problem.expressions import Constraint, Expression
from fedpact.problem.functions import as_expression
from fedpact.problem.losses import Loss
from fedpact.problem.models import NO_MODEL, Model, UnnamedModel
from fedpact.problem.nonsmooth import Tag
from fedpact.problem.personal import Personal
from fedpact.problem.regularizers import AnyRegularizer, Regularizer, as_regularizer


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """minimise objective + h(params) subject to constraints. Made by `fp.minimize`; `print(problem)` writes it out.

    - `objective`: the expression that is minimised.
    - `constraints`: in the order stated.
    - `regularizer`: h.
    - `personal`: the parties' own sets, where every party has a model of its own (default None).
    """

    objective: Expression
    constraints: tuple[Constraint, ...]
    regularizer: Regularizer
    personal: Personal | None = None

    @property
    def public(self) -> tuple[Any, ...]:
        """The parts that all parties share: everything but the parties' own sets and weights."""
        return self.objective, self.constraints, self.regularizer, self.personal is not None

    @property
    def model(self) -> Model | None:
        """The model of the losses; None where the problem has no loss. Raises ValueError where losses have different models."""
        models = {loss.model for loss in self.losses}
        if len(models) > 1:
            raise ValueError(
                f"the problem's losses use {len(models)} different models; one set of parameters is trained, so give "
                "every loss the same model"
            )
        return models.pop() if models else None

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses in objective and constraints, each once."""
        return tuple(dict.fromkeys(atom.loss for atom, _ in self.atoms() if atom.loss is not None))

    def atoms(self) -> tuple[tuple[Atom, Scope], ...]:
        """The atoms of objective and constraints with their scopes."""
        expressions = [self.objective, *(c.expression for c in self.constraints)]
        return tuple(atom for expression in expressions for atom in expression.atoms())

    def with_groups(self, values: Callable[[str, Scope], tuple[Tag, ...]]) -> "Problem":
        """The same with the values of groups that gaps leave open, by column and scope; itself where they leave none open."""
        constraints = tuple(constraint.with_groups(values) for constraint in self.constraints)
        same = all(new is old for new, old in zip(constraints, self.constraints, strict=True))
        return self if same else dataclasses.replace(self, constraints=constraints)

    def open_groups(self) -> tuple[tuple[str, Scope], ...]:
        """The columns of groups whose values gaps leave open, with the scopes of these gaps."""
        asked: dict[tuple[str, Scope], None] = {}

        def any_two(column: str, scope: Scope) -> tuple[Tag, ...]:
            asked[column, scope] = None
            return 0, 1

        self.with_groups(any_two)
        return tuple(asked)

    def __str__(self) -> str:
        added = "".join(f" + {part}" for part in self.regularizer.parts if part.kind not in ("box", "set"))
        lines = [f"minimise {self.objective}{added}"]
        lines += [
            f"    s.t. {c.name}: {c} ({c.scope})" if c.given_name else f"    s.t. {c} ({c.scope})"
            for c in self.constraints
        ]
        lines += [f"    s.t. {part}" for part in self.regularizer.parts if part.kind in ("box", "set")]
        if self.personal is not None:
            lines.append("    at the average of the parties' models, each pulled towards it and in its party's own set")
        return "\n".join(lines)


def minimize(
    objective: Expression | Callable[[Any, Any], Any],
    subject_to: Iterable[Constraint] = (),
    regularizer: AnyRegularizer | None = None,
    personal: Personal | None = None,
) -> Problem:
    """State a problem: minimise objective + h(params) subject to constraints.

    - `objective`: an expression such as `fp.mean(loss)`, averaged over the parties with equal weight; `.pooled()` averages over
      all rows instead, `.at_server()` evaluates on the server's rows. A function `(params, rows) -> scalar` is one too.
    - `subject_to`: constraints such as `fp.mean(loss) <= 0.2`, each of which holds at every party separately, unless `.pooled()`
      or `.at_server()` (default: none).
    - `regularizer`: h, one of `fp.l1`, `fp.l2`, `fp.box`, `fp.group`, `fp.prox`, a set of `fp.sets` that the parameters have
      to be in, or a sum of them (default: none).
    - `personal`: `fp.Personal(sets, pull)` for one model per party, each in the party's own set; the objective and `fp.l2` are
      then evaluated at the average model (default: one model for all).

    Returns an `fp.Problem` for `fp.solve`. Raises TypeError or ValueError where the objective is not smooth, a constraint is not
    convex in its abs or largest, a loss names no model, two constraints have the same name, or `personal` is combined with
    constraints.

        loss = fp.mean(fp.logistic_loss(fp.linear()))
        problem = fp.minimize(loss, subject_to=[(loss <= 0.6).named("loss")], regularizer=fp.l2(0.01))
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
        constraint.inequalities()  # raises here, where the constraint was written, and not in solve
        _ = constraint.scope
        if constraint.given_name in taken:
            raise ValueError(f"two constraints are named {constraint.given_name!r}; names must differ")
        if constraint.name in taken:
            constraint = constraint.named(f"{constraint.name} (#{place})")
        taken.add(constraint.name)
        constraints.append(constraint)
    h = Regularizer() if regularizer is None else as_regularizer(regularizer)
    goal = as_expression(objective)
    if not goal.is_smooth:
        raise ValueError(
            f"the objective {goal} is not differentiable because of abs(...) or largest(...); bound that by a constraint instead"
        )
    for where, expression in [
        ("the objective", goal),
        *((f"constraint {c.name!r}", c.expression) for c in constraints),
    ]:
        for atom, _ in expression.atoms():
            if atom.loss is not None and isinstance(atom.loss.model, UnnamedModel):
                raise ValueError(f"{where}: in {atom.loss.name}() {NO_MODEL}")
    if personal is not None:
        _check_personal(personal, goal, constraints, h)
    return Problem(goal, tuple(constraints), h, personal)


def _check_personal(personal: Any, goal: Expression, constraints: list[Constraint], regularizer: Regularizer) -> None:
    if not isinstance(personal, Personal):
        raise TypeError(f"personal= takes fp.Personal(sets, pull), not {personal!r}")
    if constraints:
        raise ValueError(
            f"subject_to= has {constraints[0].name!r} together with personal=; where every party has a model of its own, it is "
            "constrained by its set: state the constraint as one of personal's sets, or leave personal= out"
        )
    if regularizer.even is None:
        raise ValueError(
            "with personal= the regulariser is fp.l2(a) on all parameters, evaluated at the average model; bounds are "
            "sets: fp.sets.box, fp.l1_ball"
        )
    if any(term.scope == "server" for term in goal.terms):
        raise ValueError("with personal= the objective is evaluated at the parties, not .at_server()")
