"""What expressions are made of: `fp.mean`, `fp.value` and `fp.largest`."""

from collections.abc import Callable
from typing import Any

import jax

from fedpact.problem.atoms import Mean, RowFunction, Scope, Value, check_hash
from fedpact.problem.columns import Mask
from fedpact.problem.expressions import Constraint, Expression, Term, without_scope
from fedpact.problem.losses import Loss
from fedpact.problem.nonsmooth import Largest


def mean(function: RowFunction, where: Mask | None = None, weights: str | None = None) -> Expression:
    """The mean of a row-wise function over rows, Σ_{r in S} weight_r function(params, row r) / Σ_{r in S} weight_r.

    - `function`: a loss such as `fp.logistic_loss(model)`, or a hashable function `(params, rows) -> (rows,)` in JAX.
    - `where`: a mask of the rows S (default None: all rows).
    - `weights`: the column of the rows' weights, finite numbers from 0 on (default None: every row weighs 1). A row of weight 2
      counts as two rows.

    Returns an `Expression`, evaluated at each party unless `.pooled()` or `.at_server()`. Raises TypeError where `function` is
    not a function, `where` is not a mask or `weights` is not a name.

        recall_loss = fp.mean(fp.logistic_loss(fp.linear()), where=fp.col("y") == 1)
    """
    if not callable(function):
        raise TypeError(f"fp.mean takes a row-wise function such as fp.logistic_loss(model), not {function!r}")
    check_hash(function)
    if where is not None and not isinstance(where, Mask):
        raise TypeError(f'where= takes a mask such as fp.col("y") == 1, not {where!r}')
    if not isinstance(weights, str | None):
        raise TypeError(f"weights={weights!r}: the name of a column with the rows' weights")
    return Expression((Term(1.0, Mean(function, where, weights)),))


def value(function: Callable[[Any, Any], jax.Array]) -> Expression:
    """The number that a function of parameters and rows returns.

    - `function`: a hashable function `(params, rows) -> scalar` in JAX; rows map column names to arrays with one entry per row.

    Returns an `Expression`. It may be `.pooled()` only where the function does not read `rows`; means over all rows are written
    with `fp.mean`. Raises TypeError where `function` is not a function, or is a loss, which returns one number per row.

        size = fp.value(fp.squared_norm) <= 4.0
    """
    if not callable(function):
        raise TypeError(f"fp.value takes a function (params, rows) -> number, not {function!r}")
    if isinstance(function, Loss):
        raise TypeError(f"{function.name} gives one number per row; take its mean: fp.mean(loss)")
    check_hash(function)
    return Expression((Term(1.0, Value(function)),))


def largest(*expressions: Expression) -> Expression:
    """The largest of several expressions; `fp.largest(a, b) <= 0.1` bounds each of them.

    - `expressions`: at least one, all of the same scope.

    Returns an `Expression` that may be bounded from above and not minimised. Raises ValueError where there is no expression or
    scopes differ.
    """
    if not expressions:
        raise ValueError("fp.largest takes at least one expression, such as fp.largest(abs(a), abs(b))")
    parts = tuple(as_expression(expression) for expression in expressions)
    scopes: set[Scope] = {part.scope for part in parts}
    if len(scopes) > 1:
        raise ValueError(
            f"fp.largest mixes the scopes {', '.join(sorted(scopes))}; call .pooled() or .at_server() on the result"
        )
    return Expression((Term(1.0, Largest(tuple(without_scope(part) for part in parts)), scopes.pop()),))


def as_expression(thing: Expression | Constraint | Callable[[Any, Any], Any]) -> Expression:
    """An expression unchanged, and a plain function of (params, rows) as `fp.value` of it."""
    if isinstance(thing, Expression):
        return thing
    if isinstance(thing, Constraint):
        raise TypeError(f"expected an expression such as fp.mean(loss), not the constraint {thing}")
    if callable(thing):
        return value(thing)
    raise TypeError(f"expected an expression such as fp.mean(loss), not {thing!r}")
