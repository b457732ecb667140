"""Options are checked once, where they are made; the error names the option, its symbol and its range."""

import dataclasses
import functools
import inspect
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

import equinox as eqx
import numpy as np


class Options(eqx.Module):
    """A class of options. Where a field is annotated as a float, or may be one, a whole number given for it becomes one, and
    where it may be several, a list becomes a tuple: compiled programs tell them apart, people do not."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name, kind in inspect.get_annotations(cls).items():
            given, kinds = cls.__dict__.get(name, {}), (kind, *get_args(kind))
            takes_float, takes_tuple = float in kinds, any(get_origin(one) in (tuple, Sequence) for one in kinds)
            if (takes_float or takes_tuple) and not isinstance(given, dataclasses.Field):
                default = {} if given == {} else {"default": given}
                converters = (as_tuple,) * takes_tuple + (as_float,) * takes_float
                setattr(cls, name, eqx.field(converter=functools.partial(_converted, converters), **default))


def _converted(converters: tuple[Callable[[Any], Any], ...], value: Any) -> Any:
    return functools.reduce(lambda value, convert: convert(value), converters, value)


def as_float(value: Any) -> Any:
    """A number as a float, also each of a tuple or mapping; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(map(as_float, value))
    if isinstance(value, Mapping):
        return {name: as_float(each) for name, each in value.items()}
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return float(value) if is_number else value


def as_tuple(value: Any) -> Any:
    """A list, range or array as a tuple; anything else as it is."""
    return tuple(value) if isinstance(value, list | range | np.ndarray) else value


def check(owner: str, name: str, value: Any, rule: Callable[[Any], bool], words: str, whole: bool = False) -> None:
    """Check an option where it is made.

    - `owner`, `name`: the class and its option, for the error: "ProxAL(beta=-1): …".
    - `rule`: value -> whether it is allowed. `words`: the range, and what the option means.
    - `whole`: whether it must be a whole number (default: no).

    Raises ValueError unless `value` is a finite number that meets the rule.
    """
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value) or not rule(value):
        shown = int(value) if isinstance(value, float) and value.is_integer() else value
        raise ValueError(f"{owner}({name}={shown!r}): {words}")


def check_flag(owner: str, name: str, value: Any) -> None:
    """Raise TypeError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{owner}({name}={value!r}): True or False")
