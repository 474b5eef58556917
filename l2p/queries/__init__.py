"""Queries: one idea per file, each a noised sum of bounded per-row contributions, or a noised solve, with a price."""

from l2p.queries.base import Query
from l2p.queries.bins import BinCounts
from l2p.queries.correct import CorrectCount
from l2p.queries.descent import Descent
from l2p.queries.fewest_errors import FewestErrors
from l2p.queries.gradient import ClippedGradient, GradientNorm
from l2p.queries.gradient_length import GradientLengths
from l2p.queries.hessian import HessianSum
from l2p.queries.length import LengthSum
from l2p.queries.loss import ClippedLoss
from l2p.queries.mean import FeatureSum
from l2p.queries.moments import ClassMoment, Covariance, CrossMoment, LeastEigenvalue, SecondMoment
from l2p.queries.noisy_passes import NoisyPasses, SampledPasses
from l2p.queries.normalized import NormalizedGradient
from l2p.queries.one_pass import OnePass
from l2p.queries.pass_descent import EngineResult, PassDescent
from l2p.queries.perturbed import ApproximateMinimum, PerturbedMinimum
from l2p.queries.scaled import ScaledGradient
from l2p.queries.selection import NoisyLineSearch, NoisyMinimum
from l2p.queries.solve import Minimizer
from l2p.queries.targets import TargetSum

__all__ = [
    "ApproximateMinimum",
    "BinCounts",
    "ClassMoment",
    "ClippedGradient",
    "ClippedLoss",
    "CorrectCount",
    "Covariance",
    "CrossMoment",
    "Descent",
    "EngineResult",
    "FeatureSum",
    "FewestErrors",
    "GradientLengths",
    "GradientNorm",
    "HessianSum",
    "LeastEigenvalue",
    "LengthSum",
    "Minimizer",
    "NoisyLineSearch",
    "NoisyMinimum",
    "NoisyPasses",
    "NormalizedGradient",
    "OnePass",
    "PassDescent",
    "PerturbedMinimum",
    "Query",
    "SampledPasses",
    "ScaledGradient",
    "SecondMoment",
    "TargetSum",
]
