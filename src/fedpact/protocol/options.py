"""Options are checked once, where they are made; the error names the option, its symbol and its range."""

import dataclasses
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any, get_args

import equinox as eqx


class Options(eqx.Module):
    """A class of options. Where a field is annotated as a float, or may be one, a whole number given for it becomes one:
    compiled programs tell them apart, people do not."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name, kind in inspect.get_annotations(cls).items():
            given = cls.__dict__.get(name, {})
            if (kind is float or float in get_args(kind)) and not isinstance(given, dataclasses.Field):
                default = {} if given == {} else {"default": given}
                setattr(cls, name, eqx.field(converter=as_float, **default))


def as_float(value: Any) -> Any:
    """A number as a float; anything else as it is."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if is_number else value


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
