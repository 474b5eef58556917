"""Methods by name. Hand-designed ones register in their own files; tuned and learned ones come from checkpoints.

A file registers its methods and classes (`l2p.protectors.register`) when it is imported, so each is listed here.
"""

# Imported to register them, and so that other modules can import them from here.
# ruff: noqa: F401

from l2p.protectors.by_hand.adadp import AdaDP, adadp
from l2p.protectors.by_hand.adam import AdamBC, dp_adam, dp_adambc, dp_adamw
from l2p.protectors.by_hand.adassp import AdaSSP, adassp
from l2p.protectors.by_hand.agd import AGD, agd, agd_gumbel
from l2p.protectors.by_hand.amp import ApproximateMinima, amp
from l2p.protectors.by_hand.auto_clip import AutoClip, auto_clip
from l2p.protectors.by_hand.bolt_on import BoltOn, bolt_on_sc
from l2p.protectors.by_hand.boosted_adassp import BoostedAdaSSP, boosted_adassp
from l2p.protectors.by_hand.disk import DiSK, disk
from l2p.protectors.by_hand.dp_fc import dp_fc
from l2p.protectors.by_hand.dp_ls import DPLeastSquares, dp_ls
from l2p.protectors.by_hand.dp_newton import DPNewton, dp_newton
from l2p.protectors.by_hand.gradient_descent import dpsgd, dpsgd_mean, noisygd, noisygd_mean
from l2p.protectors.by_hand.hyfree import HyFree, hyfree
from l2p.protectors.by_hand.linear_scaling import LinearScaling, linear_scaling
from l2p.protectors.by_hand.noisy_sgd import NoisySGD, SampledSGD, bst14, bst14_sc, scs13
from l2p.protectors.by_hand.nonprivate import no_features, nonprivate
from l2p.protectors.by_hand.objpert import ObjectivePerturbation, objpert, objpert_paper
from l2p.protectors.by_hand.outpert import OutputPerturbation, outpert, outpert_paper
from l2p.protectors.by_hand.paper_sgd import sgd_adv, sgd_ma
from l2p.protectors.by_hand.pass_glm import PassGLM, pass_glm
from l2p.protectors.by_hand.planned_bolt_on import PlannedBoltOn, bolt_on
from l2p.protectors.by_hand.pnsgd import PNSGD, pnsgd
from l2p.protectors.by_hand.private_meta import PrivateMeta, private_meta
from l2p.protectors.by_hand.pulled import PulledAdam, TowardsStart, dp_adam_pulled, noisygd_pulled
from l2p.protectors.by_hand.scaled_adam import ScaledAdam, ScaleThenPrivatize, dp_adam_scaled
from l2p.protectors.hand_designed import HandDesigned
from l2p.protectors.learned.curve_scheduler import CurveScheduler
from l2p.protectors.learned.deep import DeepProjector
from l2p.protectors.learned.kalman import KalmanProjector
from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.lstm import LSTMProjector, LSTMScheduler
from l2p.protectors.learned.recurrent import (
    PublicRecurrentScheduler,
    RecurrentProjector,
    RecurrentScheduler,
    RecurrentSteps,
)
from l2p.protectors.learned.retreat import Retreat
from l2p.protectors.register import CLASSES, HAND_DESIGNED
from l2p.protectors.stepwise.base_rate import BaseRate
from l2p.protectors.stepwise.centering import Centering
from l2p.protectors.stepwise.eigenbasis import Eigenbasis
from l2p.protectors.stepwise.geometry import PublicGeometry
from l2p.protectors.stepwise.gradient_length import GradientLength
from l2p.protectors.stepwise.norm_query import NormQuery
from l2p.protectors.stepwise.projectors import MixProjector, Optax
from l2p.protectors.stepwise.public_parts import (
    Decay,
    OverCurvature,
    PublicClip,
    PublicFit,
    PublicLength,
    PublicMirror,
    PublicSubspace,
    PublicSum,
)
from l2p.protectors.stepwise.row_length import RowLength
from l2p.protectors.stepwise.schedulers import Decaying, DecayingByLength, ShareScheduler
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.protectors.with_public_rows.adamix import adamix, adamix_projected, fully_private, ngd
from l2p.protectors.with_public_rows.adamix_theory import AdaMixTheory, adamix_theory
from l2p.protectors.with_public_rows.mirror_descent import pda_dpmd
from l2p.protectors.with_public_rows.only_public import OnlyPublic, agd_avg, onlypub
from l2p.protectors.with_public_rows.ppsgd import ppgd, ppsgd, ppsgd_tight
from l2p.protectors.with_public_rows.public_end import AveragedWithPublic, FineTuned
from l2p.protectors.with_public_rows.public_filter import PublicFilter, PublicTrust
from l2p.protectors.with_public_rows.public_growth import PublicGrowth
from l2p.protectors.with_public_rows.public_moments import PublicMoments, public_moments
from l2p.protectors.with_public_rows.ridge import Ridge
