"""Byte counts as text."""


def byte_unit(count: float) -> tuple[str, float]:
    """The unit of a number of bytes: 1234567 -> ("MB", 1e6)."""
    return next(((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= size), ("B", 1.0))


def in_bytes(count: int) -> str:
    """A number of bytes as text: 1234567 -> "1.2 MB"."""
    unit, size = byte_unit(count)
    return f"{count / size:.{0 if unit == 'B' else 1}f} {unit}"
