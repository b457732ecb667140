"""Post-processing for fairness: decision rules on a trained model's scores with equal error rates in every group.

    Hardt, Price and Srebro, Equality of opportunity in supervised learning, NIPS 2016: `equal_opportunity`
    Pleiss, Raghavan, Wu, Kleinberg and Weinberger, On fairness and calibration, NIPS 2017: `calibrated_equal_opportunity`

Both are fitted on scores, labels and groups in one place, or on `fp.evaluate(result, parties, group=...)`: then parties send
histograms of their scores by group and label, which are added up, and nobody sees a score. Both need the group of a row to
decide about it.
"""

from fedpact.postprocess.fits import calibrated_equal_opportunity, equal_opportunity
from fedpact.postprocess.rules import DrawnThresholds, MixedScores

__all__ = ["DrawnThresholds", "MixedScores", "calibrated_equal_opportunity", "equal_opportunity"]
