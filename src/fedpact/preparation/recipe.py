"""A recipe: what is to become of raw columns, the same at every party."""

import numbers
from collections.abc import Sequence
from typing import Any

from fedpact.preparation.agreed import AgreedRecipe
from fedpact.preparation.steps import Label, Step
from fedpact.preparation.summary import Ask


class Recipe:
    """How raw frames become tables with features "x", labels "y" and kept columns. `fp.prepare` fits it to the parties' frames.

    - `x`: the steps that make the features, in order: `fp.standardize`, `fp.scale`, `fp.one_hot`, `fp.ordinal`, `fp.impute`,
      `fp.bins`, `fp.passthrough`. Columns that no step names are left out.
    - `y`: `fp.label("outcome", positive="died")` (default: no labels).
    - `keep`: columns that stay as they are, for masks, groups and weights (default: none). A column of `x` may be kept too.
    - `min_count`: a party tells a category only if at least so many of its rows have it (>= 1, default 1).

    Raises TypeError or ValueError where these are something else.
    """

    def __init__(
        self,
        x: Sequence[Step],
        y: Label | None = None,
        keep: Sequence[str] = (),
        min_count: int = 1,
    ):
        steps = [x] if isinstance(x, Step) else x
        if not isinstance(steps, Sequence) or not steps or not all(isinstance(step, Step) for step in steps):
            raise TypeError(f"fp.Recipe(x=...): a list of steps such as fp.standardize('age'), not {x!r}")
        if not isinstance(y, Label | None):
            raise TypeError(f"fp.Recipe(y=...): fp.label('outcome', positive='died'), not {y!r}")
        if isinstance(keep, str) or not all(isinstance(name, str) for name in keep):
            raise TypeError(f"fp.Recipe(keep=...): a list of names of columns, not {keep!r}")
        if isinstance(min_count, bool) or not isinstance(min_count, numbers.Integral) or min_count < 1:
            raise ValueError(f"fp.Recipe(min_count={min_count!r}): a number of rows, at least 1")
        taken = {"x"} if y is None else {"x", "y"}
        wrong = [name for name in keep if name in taken]
        if wrong:
            raise ValueError(f"fp.Recipe(keep=...): {wrong[0]!r} is what the recipe makes; rename that column")
        self.steps: tuple[Step, ...] = tuple(steps)
        self.label = y
        self.keep: tuple[str, ...] = tuple(dict.fromkeys(keep))
        self.min_count = int(min_count)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """What has to be known: about each column of each step, then about the label, then about kept columns."""
        of_steps = [step.ask(column) for step in self.steps for column in step.columns]
        of_label = [] if self.label is None else [self.label.ask()]
        return (*of_steps, *of_label, *map(Ask, self.keep))

    def check_fit(self, agreed: AgreedRecipe) -> None:
        """Raise ValueError where this is no fit of the recipe: other steps or columns, or something else than it states."""
        outline = [part for step in self.steps for part in step.outline()]
        label = None if self.label is None else self.label.column
        own = outline, label, sorted(self.keep)
        theirs = (
            [(encoder.name, encoder.column) for encoder in agreed.encoders],
            None if agreed.label is None else agreed.label.column,
            sorted(agreed.keep),
        )
        if own != theirs:
            raise ValueError("what was agreed on is no fit of this recipe: its steps or columns differ")
        steps = [step for step in self.steps for _ in step.outline()]
        wrong = [made.column for step, made in zip(steps, agreed.encoders, strict=True) if not step.allows(made)]
        if self.label is not None and agreed.label is not None and not self.label.allows(agreed.label):
            wrong.append(self.label.column)
        if wrong:
            raise ValueError(f"what was agreed on for column {wrong[0]!r} is not what this recipe states")

    def __repr__(self) -> str:
        more = "" if self.label is None else f", y={self.label.column}"
        columns: list[Any] = [column for step in self.steps for column in step.columns]
        kept = f", keep={', '.join(self.keep)}" if self.keep else ""
        return f"Recipe(x={', '.join(columns)}{more}{kept})"
