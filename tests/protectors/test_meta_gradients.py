"""Every protector's meta-gradients: finite, of every number, and central differences."""

import functools

import chex
import jax
import numpy as np
import pytest

from l2p.protectors import Eigenbasis, Stepwise
from tests.protectors.conformance import CASES
from tests.protectors.each_case import every_derivative
from tests.protectors.examples import BUDGETS, KEY, MODEL, ROWS, STEPS, ZERO
from tests.protectors.runs import run, setup_of


@functools.cache
def meta(name):
    """(protector, jitted loss and gradient, gradient, steps taken), for the mean training loss of two seeds."""
    case = CASES[name]
    here = setup_of(case, BUDGETS[2])

    def loss(protector):
        def loss_of(key):
            params, ended, _, _ = run(protector, ZERO, ROWS, here, key)
            return jax.vmap(MODEL.loss, (None, 0, 0))(params, ROWS.x, ROWS.y).mean(), ended.step

        losses, steps = jax.vmap(loss_of)(jax.random.split(KEY, 2))
        return losses.mean(), steps

    value_and_grad = jax.jit(jax.value_and_grad(loss, has_aux=True))
    protector = case.at(BUDGETS[2])
    (_, steps), gradient = value_and_grad(protector)
    return protector, value_and_grad, gradient, steps


_CHOICE = "it only shapes the noise of a choice of step size, which is discrete: tuning it needs a search"
_MOST = "every rate here changes by the most that is allowed, however well its probe is known; not so in batches"
_PUBLIC_CLIP = "the clipping norm is a quantile of public gradients, and this one is not used"
_NO_RIDGE = "there is no ridge, and the logarithm of nothing does not move"


def _ratios(place):
    why = "it only decides whether a price or a clipping norm changes, which is discrete"
    return {f".{place}scheduler.{name}": why for name in ("log_noise_ratio", "log_clip_ratio")}


#: Leaves without a derivative, and why.
SILENT = {
    "kalman, eigenbasis": {
        ".projector.log_unknown": "second moments are bought here, and in `kalman` they are not",
        ".projector.log_steepest": "likewise",
        ".projector.logit_return": "no prior becomes narrower here",
    },
    "kalman": {
        ".projector.spread_power": "all features have the same moment until second moments are bought",
        ".projector.log_steepest": "no step is as long as it allows; see test_kalman_curvature.py",
    },
    "pair": {
        ".projector.spread_power": "as in `kalman`",
        ".projector.log_steepest": "likewise",
        ".projector.rate_power": "no rates are bought here, and in `kalman` they are",
        ".projector.logit_return": "no prior becomes narrower here",
    },
    "agd": {".log_selection_share": _CHOICE, ".log_loss_clip": _CHOICE},
    "agd_gumbel": {".log_selection_share": _CHOICE, ".log_loss_clip": _CHOICE},
    "hyfree": {".log_loss_clip": _MOST, ".log_loss_ratio": _MOST},
    "dp_ls": {".log_scale": "it scales the margins of several classes, and here are two"},
    "linear_scaling": {".log_loss_clip": _CHOICE},
    "objpert": {".logit_share": "its ridge gives convexity for nothing, and none need be bought; in `amp` some is"},
    "objpert_paper": {".log_ridge": _NO_RIDGE, ".logit_share": "as published the share is a half, whatever it says"},
    "adamix": {".scheduler.scheduler.log_clip_norm": _PUBLIC_CLIP},
    "public_moments": {".scheduler.scheduler.log_clip_norm": _PUBLIC_CLIP},
    "amp": {".minimum.log_ridge": "more convexity is bought than it gives; in `objpert` it gives more"},
    "outpert_paper": {".log_ridge": _NO_RIDGE},
    "ppsgd": _ratios("inner."),
    "ppsgd_tight": _ratios("inner."),
    "ppgd": _ratios("inner."),
    "public growth, adam, maximum": _ratios(""),
    "agd_avg": {".inner.log_selection_share": _CHOICE, ".inner.log_loss_clip": _CHOICE},
    "shares, norm query, batches": {
        ".norm_query.log_clip_norm": "this norm is paid for and read by nobody; that of `paper, norm query` is read"
    },
}
#: What shapes rows before their eigenbasis is bought. Meta-gradients hold eigenvectors and eigenvalues still, and
#: differences move them: an eigenvector may even change its sign. Where `eigh` is held still they agree, see
#: test_eigenbasis.py.
BEFORE_BASIS = (
    ".base_rate.logit_share",
    ".centering",
    ".row_length",
    ".eigenbasis.logit_share",
    ".eigenbasis.row_norm",
)


#: Cases that compile longest and resemble others most.
LONG = (
    "private_meta",
    "amp",
    "dpsgd",
    "adassp",
    "hyfree",
    "adamix",
    "ppsgd",
    "objpert",
    "networks*",
    "pair",
    "*norm query",
    "kalman",
    "control, permutation epochs",
    "control, public geometry",
    "pnsgd",
    "adadp",
    "dp_adambc",
    "dp_adam_scaled",
    "outpert",
    "disk",
    "auto_clip",
    "deep",
    "ngd",
)


@pytest.mark.long(cases=LONG)
@every_derivative("gradients")
def test_meta_gradients_are_finite_through_exhaustion_and_reach_the_parameters(name):
    protector, _, gradient, steps = meta(name)
    chex.assert_tree_all_finite(gradient)
    assert bool(np.all(steps < STEPS)) is CASES[name].exhausts  # the cap binds inside the scan
    chex.assert_trees_all_equal_shapes(protector, gradient)
    silent = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient)
        if not np.any(np.asarray(leaf))
    ]
    assert silent == list(SILENT.get(name, ()))


#: Cases whose loss jumps a little wherever a coordinate's momentum is dropped, and carries some 1e-5 of rounding,
#: because a return divides by a variance that starts from nothing: some step must be short enough for the one and long
#: enough for the other. Two of their leaves have slopes of 1e-4, which rounding hides at every step.
JUMPING = ("kalman", "kalman, eigenbasis", "pair")
JUMPING_STEPS = (3e-4, 1e-3, 3e-3, 1e-2)
#: Of leaves with slopes above 3e-3, and of others: 1e-2 may reach the budget at which the pair takes what is left.
STEEP_STEPS, FLAT_STEPS = (3e-3,), (1e-2, 5e-3)
#: `paper` is so close to that budget that leaves of its scheduler may be moved by no more than 5e-4.
CLOSE, CLOSE_STEPS = ("paper",), (3e-4, 5e-4, 2e-3, 5e-3, 1e-2)


@pytest.mark.long(cases=LONG)
@every_derivative("differences")
def test_meta_gradients_are_central_differences(name):
    """Differences are along each leaf's own gradient, so that the slope is its norm. A silent leaf has no difference.

    The loss carries about 2e-7 of float32 rounding and a third derivative of order 1 to 1000 where it is steep, so a
    difference errs by 2e-7 / h + 100 h^2: a flat leaf is moved further, unless it bends there.
    """
    protector, loss_and_gradient, gradient, steps = meta(name)
    # In numpy, which has nothing to compile for every shape of a leaf.
    (leaves, structure), gradient = jax.tree.flatten(jax.device_get(protector)), jax.device_get(gradient)
    turned = isinstance(protector, Stepwise) and protector.purchase(Eigenbasis) is not None
    for index, (path, slopes) in enumerate(jax.tree_util.tree_leaves_with_path(gradient)):
        place, slope = jax.tree_util.keystr(path), float(np.linalg.norm(slopes))
        if turned and place.startswith(BEFORE_BASIS):
            continue
        direction = slopes / slope if slope else np.ones_like(slopes) / slopes.size**0.5
        differences = []
        usual = STEEP_STEPS if slope > 3e-3 else FLAT_STEPS
        for step in JUMPING_STEPS if name in JUMPING else CLOSE_STEPS if name in CLOSE else usual:
            values = []
            for sign in (1, -1):
                moved = [*leaves]
                moved[index] = np.float32(leaves[index] + sign * step * direction)
                (value, steps_there), _ = loss_and_gradient(jax.tree.unflatten(structure, moved))
                assert np.array_equal(steps_there, steps)  # both sides end after the same step, or no derivative exists
                values.append(float(value))
            differences.append((values[0] - values[1]) / (2 * step))
        expected = pytest.approx(slope, rel=0.05, abs=2e-4 if name in JUMPING else 3e-5)
        assert any(difference == expected for difference in differences), (place, differences, slope)
