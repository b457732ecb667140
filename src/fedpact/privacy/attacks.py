"""What can be guessed of labels and groups from what a passive party sees: the attacks behind `fp.audit`.

A party's view is, for every round, an array with one line per row: the residuals ν as they were sent, or ciphertext cut into
as many pieces. Accuracies are parts of rows guessed right.
"""

from collections.abc import Sequence

import numpy as np


def sign_attack(view: np.ndarray) -> np.ndarray:
    """Labels as the signs of −ν in the first round: a loss falls with the score of a positive row, so its ν is negative.

    - `view`: (rounds, rows).

    Returns +1 or −1 for each row.
    """
    return np.where(view[0] < 0, 1, -1)


def clustering_attack(view: np.ndarray) -> np.ndarray:
    """Two groups of rows, 0 and 1, among those of one label: a multiplier scales ν of the two groups differently.

    Of the ratios ν_t/ν_0 and ν_t/ν_{t−1}, the one that falls into two most clearly is split by two-means, which is exact on a
    line.

    - `view`: (rounds, rows), of the rows that the sign attack takes for positive.
    """
    ratios = np.concatenate([_ratio(view[1:], view[:1]), _ratio(view[2:], view[1:-1])])
    splits = [two_means(line) for line in ratios]
    return max(splits, key=lambda split: split[1])[0] if splits else np.zeros(view.shape[1], int)


def _ratio(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Line by line; 0 where there was nothing, and no larger than can be squared and summed."""
    with np.errstate(over="ignore"):
        ratio = np.divide(later, earlier, out=np.zeros_like(later), where=earlier != 0)
    return np.clip(ratio, -1e100, 1e100)


def two_means(values: np.ndarray) -> tuple[np.ndarray, float]:
    """The best split of numbers into two clusters, and the part of their variance that it explains."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    n, total = len(ordered), ordered.sum()
    spread = float(((ordered - total / n) ** 2).sum())
    if n < 2 or spread <= 0:
        return np.zeros(n, int), 0.0
    left = np.arange(1, n)
    sums = np.cumsum(ordered)[:-1]
    between = left * (sums / left - total / n) ** 2 + (n - left) * ((total - sums) / (n - left) - total / n) ** 2
    cut = int(np.argmax(between)) + 1
    out = np.zeros(n, int)
    out[order[cut:]] = 1
    return out, float(between[cut - 1]) / spread


def logistic_attack(jacobian: np.ndarray, gradient: np.ndarray, rounds: int = 50) -> np.ndarray:
    """Labels from the party's own first gradient g = Jᵀν: it holds Jᵀy, all that a logistic regression of y on J needs.

    At scores of 0 the logistic loss has ν = −y/2n, so Jᵀy = −2n g. The regression's β solves Σ_i J_i tanh(J_iβ/2) = Jᵀy, by
    Newton's method with a small ridge; the guess is the sign of Jβ.

    - `jacobian`: (rows, parameters).

    Returns +1 or −1 for each row.
    """
    n, size = jacobian.shape
    moment, ridge = -2.0 * n * gradient, 1e-3 * n * np.mean(jacobian**2)
    beta = np.zeros(size)
    for _ in range(rounds):
        level = np.tanh(np.clip(0.5 * jacobian @ beta, -30.0, 30.0))
        slope = jacobian.T @ level - moment + ridge * beta
        hessian = (jacobian * (0.5 * (1.0 - level**2))[:, None]).T @ jacobian + ridge * np.eye(size)
        step = np.linalg.solve(hessian, slope)
        beta -= step * min(1.0, 5.0 / max(np.abs(step).max(), 1e-30))
        if np.abs(step).max() < 1e-8:
            break
    return np.where(jacobian @ beta > 0, 1, -1)


def agreement(guess: np.ndarray, truth: np.ndarray) -> float:
    """The part guessed right."""
    return float(np.mean(guess == truth))


def agreement_up_to_names(guess: np.ndarray, truth: np.ndarray) -> float:
    """Of two clusters, whichever is called which."""
    right = float(np.mean(guess == truth))
    return max(right, 1.0 - right)


def majority(values: np.ndarray) -> float:
    """What always guessing the more frequent value gets right."""
    return float(np.unique(values, return_counts=True)[1].max() / len(values))


def cut_to_rows(message: np.ndarray, rows: int) -> np.ndarray:
    """Bytes as one number a row, about 0."""
    data = np.resize(message.ravel(), max(message.size // rows, 1) * rows).astype(float)
    return data.reshape(rows, -1).mean(1) - 127.5


def per_row(leaves: Sequence[np.ndarray], rows: int) -> np.ndarray | None:
    """The numbers that a message holds for each row, added over what else it has; else its bytes; None where there are none."""
    for leaf in leaves:
        if leaf.dtype.kind == "f" and leaf.ndim and leaf.shape[0] == rows:
            return leaf.reshape(rows, -1).sum(1)
    ciphertexts = [leaf.ravel() for leaf in leaves if leaf.dtype == np.uint8]
    return cut_to_rows(np.concatenate(ciphertexts), rows) if ciphertexts else None
