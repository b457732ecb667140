"""Trackers: what is told of a run's end, in one process and deployed."""

import warnings
from typing import Any

from fedpact.run.result import Result


def finished(watch: Any, result: Result) -> None:
    """Tell a tracker the result, but not a function that only watches rounds; one that fails does not cost the result."""
    finish = getattr(watch, "finish", None)
    if finish is None:
        return
    try:
        finish(result)
    except Exception as error:
        warnings.warn(f"the tracker failed after the run: {type(error).__name__}: {error}", stacklevel=3)
