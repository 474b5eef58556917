"""Methods that solve a linear system of noised moments: one release of two sums, and a closed form."""

import abc

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model, Softmax
from l2p.oracle import Oracle
from l2p.protectors.by_hand.centred import OnCentredRows
from l2p.protectors.by_hand.smooth import check_norm_bound
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.stepwise.centering import Centering
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries import ClassMoment, CrossMoment, SecondMoment
from l2p.queries.moments import noise_radius, unfolded
from l2p.task.feature_map import FeatureMap


@struct.dataclass
class Moments:
    """Released sums over mapped rows x with their intercept column.

    Attributes:
      second: f32[p, p], of x x'.
      ridge: f32[], added to its diagonal.
      cross: f32[p], of y x with numbers y; with classes -1 and 1 for two classes; f32[p, K] of one-hot classes.
    """

    second: jax.Array
    ridge: jax.Array
    cross: jax.Array

    def solve(self, right: jax.Array) -> jax.Array:
        """The solution f32[p, ...] of the ridged system for a right side f32[p, ...]."""
        return jnp.linalg.solve(self.second + self.ridge * jnp.eye(self.second.shape[0]), right)


class NoisedMoments(OnCentredRows):
    """A protector whose only step buys the second moment of rows, and their product with targets.

    Both are sums of rows that are shrunk to a public norm, see `l2p.queries.moments`. The ridge is a multiple of the
    spectral radius of the noise on the second moment, so that the system stays positive. All arrays are polynomials in
    log(mu N), f32[k].

    Attributes:
      centering: the private mean that is bought first.
      log_norm_bound: f32[k], log of the norm that mapped rows, with their intercept column, are shrunk to.
      logit_share: f32[k], logit of the second moment's share of the budget after the mean.
      log_ridge: f32[k], log of the ridge over the spectral radius of the noise.
      num_steps: 1 (static).
    """

    centering: Centering
    log_norm_bound: Polynomial
    logit_share: Polynomial
    log_ridge: Polynomial
    num_steps: Count
    adaptive_noise = False

    def check_model(self, model: Model) -> None:
        check_norm_bound(type(self).__name__, self.log_norm_bound)

    def buy(self, params: jax.Array, oracle: Oracle) -> Moments:
        """Both sums, for the whole budget after the mean."""
        setup, log_signal = oracle.setup, oracle.setup.log_signal
        num_features = setup.model.num_features(params.shape[0])
        norm_bound = jnp.exp(value(self.log_norm_bound, log_signal))
        share = jax.nn.sigmoid(value(self.logit_share, log_signal))
        after_mean = 1.0 - jax.nn.sigmoid(value(self.centering.logit_share, log_signal))
        # Not of the remaining budget: a second step would spend the rest on noise, and so it is refused.
        price = after_mean * (1.0 - SLACK) * setup.price_list.budget
        multipliers = [oracle.noise_multiplier(part * price) for part in (share, 1.0 - share)]
        second = SecondMoment(num_features, norm_bound, multipliers[0])
        answer = unfolded(oracle.ask(second), num_features + 1)
        ridge = jnp.exp(value(self.log_ridge, log_signal)) * noise_radius(
            multipliers[0], second.bound, num_features + 1, setup.adjacency
        )
        if isinstance(setup.model, Softmax):
            of_class = ClassMoment(num_features, setup.model.num_classes, norm_bound, multipliers[1])
            return Moments(answer, ridge, oracle.ask(of_class).reshape(num_features + 1, -1))
        cross = CrossMoment(num_features, norm_bound, multipliers[1], setup.kind == "binary")
        return Moments(answer, ridge, oracle.ask(cross))

    def step(self, params: jax.Array, state: FeatureMap, oracle: Oracle) -> tuple[jax.Array, FeatureMap]:
        return self.solution(params, self.buy(params, oracle), oracle), state

    @abc.abstractmethod
    def solution(self, params: jax.Array, moments: Moments, oracle: Oracle) -> jax.Array:
        """Params f32[p] for mapped rows, from the public start f32[p] and the moments."""
