"""How much noise a privacy budget needs, and how much budget a run has spent: by Google's dp-accounting.

A run is k releases of the Gaussian mechanism, each with noise of z times the most that one row can move it. Together they
tell exactly as much as one release with noise z/√k: Gaussian mechanisms compose without loss, also where a later release
depends on earlier ones (Dong, Roth and Su, Gaussian differential privacy, 2022, corollary 3.3). The privacy loss of that one
release is known in closed form, and dp-accounting evaluates it (`GaussianPrivacyLoss`), so nothing is lost to Rényi bounds or
to a discretised privacy loss distribution.
"""

import math
from typing import Any

from fedpact.extras import install

MOST = 1e4  # ε above this is not told apart


def accountant() -> Any:
    """dp-accounting's privacy loss of the Gaussian mechanism. Raises ImportError where it is missing (the extra `private`)."""
    try:
        from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
    except ImportError as error:
        raise ImportError(f"fp.DifferentialPrivacy needs dp-accounting: {install('private')}") from error
    return GaussianPrivacyLoss


def noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """z, the standard deviation of the noise in units of a row's largest influence, for this many releases in all."""
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    once = accountant().from_privacy_guarantee(DifferentialPrivacyParameters(epsilon, delta))
    return float(once.standard_deviation) * math.sqrt(releases)


def epsilon_spent(multiplier: float, delta: float, releases: int) -> float:
    """The least ε with which this many releases are (ε, δ)-differentially private; ∞ above 10,000."""
    from scipy.optimize import brentq

    once = accountant()(multiplier / math.sqrt(releases))

    def over(epsilon: float) -> float:
        return once.get_delta_for_epsilon(epsilon) - delta

    if over(0.0) <= 0:
        return 0.0
    if over(MOST) > 0:
        return math.inf
    found: Any = brentq(over, 0.0, MOST, xtol=1e-12)
    return float(found)
