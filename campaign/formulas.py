"""The second statement of every problem, written by hand: for NumPy, CasADi (IPOPT) and cvxpy (Clarabel).

    minimise   Σ terms + Σ l2 w² + Σ l1 |w| + weight Σ_g ‖w_g‖
    s.t.       Σ terms + constant <= 0 (or == 0) for every row,   lower <= w <= upper

A term is coefficient · (1/rows) Σ_r φ(s_r, t_r) with scores s = A w, or those of a network with one hidden layer of tanh. The
functions φ stand below in three languages; nothing here calls fedpact. Flat parameters are in the order of their names: b
before w, b1 before b2 before w1 before w2.
"""

import dataclasses
import functools
import importlib
from typing import Any, Literal

import numpy as np

Kind = Literal["logistic", "squared", "hinge", "rate", "linear"]
Array = np.ndarray


def phi(kind: Kind, s: Array, t: Array, p: float) -> tuple[Array, Array, Array]:
    """φ with its first and second derivative by the score; t is ±1 (logistic, hinge) or a number (squared, linear)."""
    if kind == "logistic":  # log(1 + exp(-t s))
        share = _sigmoid(-t * s)
        return np.logaddexp(0.0, -t * s), -t * share, share * (1 - share)
    if kind == "squared":  # ½ (s - t)²
        return 0.5 * (s - t) ** 2, s - t, np.ones_like(s)
    if kind == "hinge":  # u = 1 - t s: 0, u²/(2p) up to u = p, then u - p/2
        u = 1.0 - t * s
        bent = np.clip(u, 0.0, p)
        return bent**2 / (2 * p) + np.maximum(u - p, 0.0), -t * bent / p, ((u > 0) & (u < p)) / p
    if kind == "rate":  # 1 / (1 + exp(-s/p))
        share = _sigmoid(s / p)
        return share, share * (1 - share) / p, share * (1 - share) * (1 - 2 * share) / p**2
    return s - t, np.ones_like(s), np.zeros_like(s)


def phi_casadi(kind: Kind, s: Any, t: Array, p: float) -> Any:
    ca = casadi()
    t = ca.DM(t)
    if kind == "logistic":
        z = -t * s
        low = ca.fmin(z, 300.0)  # above, log(1 + exp z) is z to the last digit
        return ca.log1p(ca.exp(low)) + (z - low)
    if kind == "squared":
        return 0.5 * (s - t) ** 2
    if kind == "hinge":
        u = 1.0 - t * s
        return ca.fmin(ca.fmax(u, 0.0), p) ** 2 / (2 * p) + ca.fmax(u - p, 0.0)
    if kind == "rate":
        return 0.5 + 0.5 * ca.tanh(s / (2 * p))
    return s - t


def phi_cvxpy(kind: Kind, s: Any, t: Array, p: float) -> Any:
    """The sum of φ over rows. Rates are not convex and have no such formula."""
    import cvxpy as cp

    if kind == "logistic":
        return cp.sum(cp.logistic(cp.multiply(-t, s)))
    if kind == "squared":
        return 0.5 * cp.sum_squares(s - t)
    if kind == "hinge":
        return cp.sum(cp.huber(cp.pos((1.0 - cp.multiply(t, s)) / p), 1)) * (p / 2)
    if kind == "linear":
        return cp.sum(s - t)
    raise ValueError(f"{kind} is not convex")


@functools.cache
def casadi() -> Any:
    return importlib.import_module("casadi")


def _sigmoid(z: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * z)


@dataclasses.dataclass(frozen=True, eq=False)
class Term:
    """coefficient · mean of φ over rows; `hidden` > 0: the scores of a network with so many hidden units."""

    kind: Kind
    A: Array
    t: Array
    coefficient: float = 1.0
    parameter: float = 1.0
    hidden: int = 0

    def value(self, w: Array) -> float:
        return self.coefficient * float(phi(self.kind, self._scores(w), self.t, self.parameter)[0].mean())

    def gradient(self, w: Array) -> Array:
        slope = phi(self.kind, self._scores(w), self.t, self.parameter)[1] * (self.coefficient / len(self.t))
        if not self.hidden:
            return self.A.T @ slope
        b1, _, w1, w2 = self.layers(w)
        signal = np.tanh(self.A @ w1 + b1)
        back = np.outer(slope, w2) * (1 - signal**2)
        return np.concatenate([back.sum(0), [slope.sum()], (self.A.T @ back).ravel(), signal.T @ slope])

    def hessian(self, w: Array) -> Array:
        """Of terms with linear scores."""
        bend = phi(self.kind, self._scores(w), self.t, self.parameter)[2] * (self.coefficient / len(self.t))
        return self.A.T @ (bend[:, None] * self.A)

    def layers(self, w: Array) -> tuple[Array, float, Array, Array]:
        """b1, b2, w1, w2 of the flat parameters."""
        h, d = self.hidden, self.A.shape[1]
        return w[:h], w[h], w[h + 1 : h + 1 + d * h].reshape(d, h), w[h + 1 + d * h :]

    def _scores(self, w: Array) -> Array:
        if not self.hidden:
            return self.A @ w
        b1, b2, w1, w2 = self.layers(w)
        return np.tanh(self.A @ w1 + b1) @ w2 + b2

    def casadi(self, w: Any) -> Any:
        """The same in CasADi, w a vector of MX."""
        ca = casadi()
        rows = len(self.t)
        if not self.hidden:
            scores = ca.mtimes(ca.DM(self.A), w)
        else:
            h, d = self.hidden, self.A.shape[1]
            w1 = ca.reshape(w[h + 1 : h + 1 + d * h], h, d).T  # CasADi fills columns first
            signal = ca.tanh(ca.mtimes(ca.DM(self.A), w1) + ca.repmat(w[:h].T, rows, 1))
            scores = ca.mtimes(signal, w[h + 1 + d * h :]) + w[h]
        return self.coefficient / rows * ca.sum1(phi_casadi(self.kind, scores, self.t, self.parameter))

    def cvxpy(self, w: Any) -> Any:
        return self.coefficient / len(self.t) * phi_cvxpy(self.kind, self.A @ w, self.t, self.parameter)

    def through(self, T: Array) -> "Term":
        """The same term as a function of v, w = T v (networks: unchanged)."""
        return self if self.hidden else dataclasses.replace(self, A=self.A @ T)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """Σ terms + constant <= 0, or == 0. `unit`: the magnitude that a violation is compared with."""

    terms: tuple[Term, ...]
    constant: float = 0.0
    equality: bool = False
    unit: float = 1.0

    def value(self, w: Array) -> float:
        return sum(term.value(w) for term in self.terms) + self.constant

    def gradient(self, w: Array) -> Array:
        return sum((term.gradient(w) for term in self.terms), np.zeros_like(w))

    def excess(self, w: Array) -> float:
        """The violation in the row's own numbers."""
        return abs(self.value(w)) if self.equality else max(self.value(w), 0.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Formulas:
    """One problem. `l1`, `l2`, `lower`, `upper` are numbers for all parameters, or arrays; `groups` lists flat indices."""

    size: int
    objective: tuple[Term, ...]
    rows: tuple[Row, ...] = ()
    l1: float | Array = 0.0
    l2: float | Array = 0.0
    lower: float | Array = -np.inf
    upper: float | Array = np.inf
    groups: tuple[tuple[int, ...], ...] = ()
    weight: float = 0.0
    convex: bool = True

    def full(self, number: float | Array) -> Array:
        return np.broadcast_to(np.asarray(number, float), (self.size,)).copy()

    def value(self, w: Array) -> float:
        """The objective with the regulariser; the box counts in `violation`."""
        h = np.sum(self.full(self.l2) * w**2) + np.sum(self.full(self.l1) * np.abs(w))
        h += self.weight * sum(float(np.linalg.norm(w[list(g)])) for g in self.groups)
        return sum(term.value(w) for term in self.objective) + float(h)

    def smooth_gradient(self, w: Array) -> Array:
        """Of the terms and of l2."""
        return sum((term.gradient(w) for term in self.objective), 2 * self.full(self.l2) * w)

    def outside(self, w: Array) -> float:
        """The distance from the box."""
        return float(np.max(np.maximum(np.maximum(self.lower - w, w - self.upper), 0.0), initial=0.0))

    def violation(self, w: Array) -> float:
        """The largest violation in the problem's own numbers."""
        return max([self.outside(w), *(row.excess(w) for row in self.rows)])

    def relative_violation(self, w: Array) -> float:
        """The largest violation, each in its row's unit, the box in units of w."""
        scale = 1.0 + float(np.max(np.abs(w), initial=0.0))
        return max([self.outside(w) / scale, *(row.excess(w) / row.unit for row in self.rows)])

    @property
    def separable(self) -> bool:
        """Whether the regulariser is a sum over coordinates or groups, so that only columns can be scaled."""
        box = np.isfinite(self.full(self.lower)) | np.isfinite(self.full(self.upper))
        return bool(box.any() or np.any(self.full(self.l1)) or self.groups)

    @functools.cached_property
    def scaling(self) -> Array:
        """T with w = T v, v of order one: whitens the rows; diagonal where the regulariser asks for it, and for networks.

        Groups share one scale each, so that their norms stay norms.
        """
        terms = [*self.objective, *(term for row in self.rows for term in row.terms)]
        hidden = terms[0].hidden
        width = terms[0].A.shape[1]
        gram = np.zeros((width, width))
        for term in terms:
            size = np.linalg.norm(term.A)
            gram += term.A.T @ term.A / size**2 if size > 0 else 0.0
        spread = np.sqrt(np.diag(gram))
        D = 1.0 / np.where(spread > 0, spread / max(spread.max(), 1e-300), 1.0)
        rms = np.sqrt(np.mean([np.mean(term.A**2) * width for term in terms]))
        D /= max(rms, 1e-300)
        if hidden:
            return np.diag(np.concatenate([np.ones(hidden + 1), np.repeat(D, hidden), np.ones(hidden)]))
        for group in self.groups:
            D[list(group)] = np.exp(np.mean(np.log(D[list(group)])))
        if self.separable:
            return np.diag(D)
        e, V = np.linalg.eigh(D[:, None] * gram * D)
        e = np.sqrt(np.maximum(e / max(e.max(), 1e-300), 1e-10))
        return D[:, None] * (V / e) @ V.T


def lowest(terms: list[Term], T: Array, ridge: float = 1e-9, rounds: int = 300) -> Array:
    """The w that minimises Σ terms + ridge ‖v‖², w = T v, for convex terms with linear scores: Newton, damped as by Levenberg."""
    mine = [term.through(T) for term in terms]

    def total(v: Array) -> float:
        return sum(term.value(v) for term in mine) + ridge * float(v @ v)

    v = np.zeros(T.shape[1])
    at, damping = total(v), 1e-3
    for _ in range(rounds):
        slope = sum((term.gradient(v) for term in mine), 2 * ridge * v)
        H = sum((term.hessian(v) for term in mine), 2 * ridge * np.eye(len(v)))
        if float(np.linalg.norm(slope)) <= 1e-14 * max(abs(at), 1e-300):
            break
        size = max(float(np.trace(H)) / len(v), 1e-3 * float(np.linalg.norm(slope)))
        trial = v - np.linalg.solve(H + (damping + 1e-14) * size * np.eye(len(v)), slope)
        new = total(trial)
        if new < at:
            v, at, damping = trial, new, damping / 10
        elif damping > 1e12:
            break
        else:
            damping = max(10 * damping, 1e-13)
    return T @ v
