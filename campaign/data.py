"""Kinds of data: what is done to standardised columns before anybody sees them; and rows of classes and regressions."""

from collections.abc import Callable

import numpy as np

KINDS = (
    "standardised",
    "raw",
    "huge",
    "tiny",
    "offset",
    "heavy",
    "collinear",
    "duplicated",
    "constant",
    "separable",
    "one-hot",
)
Array = np.ndarray


def transform(kind: str, rng: np.random.Generator, d: int) -> Callable[[Array], Array]:
    """A map of standardised columns (rows, d) to columns of this kind, one for all parties."""
    if kind == "raw":
        scale = 10.0 ** rng.uniform(-4, 6, size=d)
        return lambda z: scale * (z + 2.0)
    if kind == "huge":
        return lambda z: 1e6 * z
    if kind == "tiny":
        return lambda z: 1e-5 * z
    if kind == "offset":
        shift = rng.choice([-1e4, 1e3, 1e4], size=d)
        return lambda z: z + shift
    if kind == "heavy":
        return lambda z: z * np.abs(rng.standard_t(1.5, size=z.shape))
    if kind == "collinear" and d > 1:
        half = d // 2
        mixed = rng.normal(size=(half, d - half))
        return lambda z: np.hstack([z[:, :half], z[:, :half] @ mixed + 1e-6 * z[:, half:]])
    if kind == "duplicated":
        if d == 1:
            return lambda z: z[[i - i % 4 // 2 * 2 for i in range(len(z))]]  # rows twice, with their labels
        return lambda z: z[:, np.arange(d) % ((d + 1) // 2)]
    if kind == "constant" and d > 1:

        def constant(z: Array) -> Array:
            x = z.copy()
            x[:, -1] = 3.0
            if d > 4:
                x[:, -2] = 0.0
            return x

        return constant
    if kind == "one-hot":

        def one_hot(z: Array) -> Array:
            if d == 1:
                return (z > 0).astype(float)
            blocks = np.split(z, [d // 2], axis=1) if d > 4 else [z]
            return np.hstack([np.eye(b.shape[1])[b.argmax(axis=1)] for b in blocks])

        return one_hot
    return lambda z: z.copy()  # standardised; separable ones are so by their labels


def classes(
    kind: str, rng: np.random.Generator, parties: int, rows: int, d: int, distance: float = 1.0
) -> list[dict[str, Array]]:
    """Two classes y in turn, two groups g, columns x: they lie a little differently at each party."""
    change = transform(kind, rng, d)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    found = []
    for _ in range(parties):
        y = np.arange(rows) % 2
        sign = np.where(y == 1, 1.0, -1.0)
        z = rng.normal(size=(rows, d)) + 0.3 * rng.normal(size=d)
        if kind == "separable":
            along = sign * (np.abs(z @ direction) + 0.5)
            z += np.outer(along - z @ direction, direction)
        else:
            z += distance * np.outer(sign, direction)
        g = (np.arange(rows) // 2) % 2
        z[:, 0] += 0.5 * g
        found.append({"x": change(z), "y": y, "g": g})
    return found


def regression(kind: str, rng: np.random.Generator, parties: int, rows: int, d: int) -> list[dict[str, Array]]:
    """Rows x, y to be fitted, and rows u, v whose loss is to be bounded; separable: u, v can be fitted exactly."""
    change = transform(kind, rng, d)
    truth, other = rng.normal(size=(2, d))
    noise = 0.0 if kind == "separable" else 0.3
    size = {"huge": 1e3, "tiny": 1e-2}.get(kind, 1.0)  # labels have units, too
    found = []
    for _ in range(parties):
        z, zu = rng.normal(size=(2, rows, d))
        y = z @ truth + 0.3 * rng.normal(size=rows)
        v = zu @ (truth + 0.5 * other) + 0.3 + noise * rng.normal(size=rows)
        found.append({"x": change(z), "y": size * y, "u": change(zu), "v": size * v})
    return found


def with_one(x: Array) -> Array:
    """The columns of a linear model with an intercept, in the order of its flat parameters."""
    return np.hstack([np.ones((len(x), 1)), x])
