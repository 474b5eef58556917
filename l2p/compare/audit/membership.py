"""Membership inference by a threshold on the loss, and the bound that privacy sets on it."""

import dataclasses
import math

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Attack:
    """Accuracy of telling the losses of training rows from those of others.

    Attributes:
      auc: probability that a training row has the smaller loss of the two; ties count half.
      standard_error: of `auc`, over draws of the rows (Hanley and McNeil 1982).
    """

    auc: float
    standard_error: float


def threshold_attack(member_losses: np.ndarray, other_losses: np.ndarray) -> Attack:
    """PRIVATE where the members are. AUC over all thresholds: a row is called a member if its loss is below.

    Args:
      member_losses: f[n] of training rows.
      other_losses: f[m] of rows that the run did not read.

    >>> round(threshold_attack(np.array([0.0, 1.0]), np.array([2.0, 1.0])).auc, 3)
    0.875
    """
    members, outsiders = np.asarray(member_losses, np.float64), np.asarray(other_losses, np.float64)
    n, m = len(members), len(outsiders)
    ranks = stats.rankdata(np.concatenate([outsiders, members]))
    auc = float((ranks[:m].sum() - m * (m + 1) / 2) / (n * m))
    both, either = auc / (2.0 - auc), 2.0 * auc**2 / (1.0 + auc)
    variance = (auc * (1.0 - auc) + (n - 1) * (both - auc**2) + (m - 1) * (either - auc**2)) / (n * m)
    return Attack(auc, math.sqrt(max(variance, 0.0)))


def auc_ceiling(mu: float) -> float:
    """The largest expected AUC of any attack on a row of a mu-Gaussian-DP release, Phi(mu / sqrt(2)).

    >>> from l2p.privacy.cost.convert import gdp_mu
    >>> round(auc_ceiling(gdp_mu(3.0, 1e-5)), 3)
    0.694
    """
    return float(stats.norm.cdf(mu / math.sqrt(2.0)))
