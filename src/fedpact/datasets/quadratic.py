"""Random quadratic programmes with linear equality constraints, and their exact optimum.

    min_w Σ_{i=1..n} ½ wᵀA_i w + b_iᵀw   subject to   C_i w + d_i = 0,  i = 0, …, n        (84)

Party i has A_i, b_i, C_i and d_i; the server has C_0 and d_0.

C. He, L. Peng, J. Sun: Federated Learning with Convex Global and Local Constraints. TMLR 2024. Section E.2.
"""

import dataclasses

import numpy as np

STARTS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Lcqp:
    """A linearly constrained quadratic programme over n parties and a server, with its optimum. Made by `fp.datasets.lcqp`.

        min_w Σ_{i=1..n} ½ wᵀA_i w + b_iᵀw   subject to   C_i w + d_i = 0,  i = 0, …, n

    - `A` (n, d, d), `b` (n, d): the objectives; index i belongs to party i + 1.
    - `C` (n+1, m, d), `d` (n+1, m): the constraints; index 0 belongs to the server, index i to party i.
    - `w0` (10, d): starting points on the unit sphere; (d,) where one `trial` was selected.
    - `w_star` (d,), `f_star`: the minimiser and the minimum.
    """

    A: np.ndarray
    b: np.ndarray
    C: np.ndarray
    d: np.ndarray
    w0: np.ndarray
    w_star: np.ndarray
    f_star: float


def lcqp(d: int, n: int, m: int, seed: int = 10, trial: int | None = None) -> Lcqp:
    """A random linearly constrained quadratic programme as in He, Peng and Sun (2024), Section E.2.

    A_i = U_i D_i U_iᵀ with D_i uniform on [0.5, 1] and U_i orthogonal; C_i normal with standard deviation 1/√d; b_i and d_i on
    the unit sphere.

    - `d`: variables (>= 1).
    - `n`: parties (>= 1).
    - `m`: equality constraints at each party and at the server (>= 1, (n + 1) m <= d).
    - `seed`: of the instance (default 10: the numbers of the paper's Table 4, from its published code PL97/Constr_FL on GitHub,
      which differs from the text in two points: d_0 = 0, and starting points have no negative entry).
    - `trial`: select one of the ten starting points, 0 to 9 (default None: all ten). They depend on d alone.

    Returns an `fp.datasets.Lcqp`. Raises ValueError where a size or `trial` is out of range.
    """
    for letter, size in (("d", d), ("n", n), ("m", m)):
        if size < 1:
            raise ValueError(f"lcqp({letter}={size}): {letter} must be at least 1")
    if (n + 1) * m > d:
        raise ValueError(
            f"lcqp(d={d}, n={n}, m={m}): {(n + 1) * m} equalities are too many; (n + 1) m must be at most d"
        )
    if trial is not None and not 0 <= trial < STARTS:
        raise ValueError(f"lcqp(trial={trial}): trials are 0 to {STARTS - 1}")
    A, b, C, shifts = _instance(d, n, m, np.random.RandomState(seed))
    starts = np.stack([_unit(np.random.RandomState(k).rand(d)) for k in range(STARTS)])
    w_star, f_star = _optimum(A.sum(axis=0), b.sum(axis=0), C.reshape(-1, d), shifts.ravel())
    return Lcqp(A, b, C, shifts, starts if trial is None else starts[trial], w_star, f_star)


def _instance(d: int, n: int, m: int, stream: np.random.RandomState) -> tuple[np.ndarray, ...]:
    """The draws are in the order of the published code, where the server comes last and its A and b are not used."""
    A = np.zeros((n + 1, d, d))
    for i in range(n + 1):
        eigenvalues = 0.5 + 0.5 * stream.rand(d)
        stream.permutation(d)
        U = np.linalg.svd(stream.randn(d, d))[0]
        A[i] = (U * eigenvalues) @ U.T
    b = _unit(stream.randn(d, n + 1)).T
    C = stream.randn(m, d, n + 1).transpose(2, 0, 1) / np.sqrt(d)
    shifts = _unit(stream.randn(m, n + 1)).T
    shifts[-1] = 0
    server_first = np.roll(np.arange(n + 1), 1)
    return A[:n], b[:n].copy(), C[server_first], shifts[server_first]


def _unit(columns: np.ndarray) -> np.ndarray:
    return columns / np.linalg.norm(columns, axis=0)


def _optimum(Q: np.ndarray, q: np.ndarray, J: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, float]:
    """min ½ wᵀQw + qᵀw subject to Jw + j = 0, from its optimality conditions."""
    kkt = np.block([[Q, J.T], [J, np.zeros((len(J), len(J)))]])
    w = np.linalg.solve(kkt, -np.concatenate([q, j]))[: len(q)]
    return w, float(0.5 * w @ Q @ w + q @ w)
