"""Options are checked once, where they are made; the error names the option, its symbol and its range."""

import math
import numbers
from collections.abc import Callable
from typing import Any


def check(owner: str, name: str, value: Any, rule: Callable[[Any], bool], words: str, whole: bool = False) -> None:
    """Check an option where it is made.

    - `owner`, `name`: the class and its option, for the error: "ProxAL(beta=-1): …".
    - `rule`: value -> whether it is allowed. `words`: the range, and what the option means.
    - `whole`: whether it must be a whole number (default: no).

    Raises ValueError unless `value` is a finite number that meets the rule.
    """
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value) or not rule(value):
        raise ValueError(f"{owner}({name}={value!r}): {words}")


def check_flag(owner: str, name: str, value: Any) -> None:
    """Raise TypeError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{owner}({name}={value!r}): True or False")
