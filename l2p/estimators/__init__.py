"""Private training as scikit-learn has it: `fit` spends a privacy budget, everything after it is free.

Nothing else in l2p reads classes off labels, and here too only with a warning and a line on the card. Steps before an
estimator in a pipeline read rows without paying: docs/estimators.md says which ones may.
"""

from l2p.base.garbage import seldom_collected

with seldom_collected():
    from l2p.estimators.classifier import PrivateClassifier
    from l2p.estimators.messages import (
        DefaultBoundsWarning,
        NothingLearnedWarning,
        PrivacyLeakWarning,
        RepeatedFitWarning,
        SimulationWarning,
    )
    from l2p.estimators.regressor import PrivateRegressor
    from l2p.estimators.sgd_classifier import sgd_run

__all__ = [
    "DefaultBoundsWarning",
    "NothingLearnedWarning",
    "PrivacyLeakWarning",
    "PrivateClassifier",
    "PrivateRegressor",
    "RepeatedFitWarning",
    "SimulationWarning",
    "sgd_run",
]
