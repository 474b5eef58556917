"""Queries: one mechanism per file, each a noised sum of bounded per-row contributions with a price."""

from l2p.queries.base import Query
from l2p.queries.descent import Descent
from l2p.queries.gradient import ClippedGradient, GradientNorm
from l2p.queries.mean import FeatureSum
from l2p.queries.perturbed import PerturbedMinimum
from l2p.queries.selection import NoisyMinimum
from l2p.queries.solve import Minimizer

__all__ = [
    "ClippedGradient",
    "Descent",
    "FeatureSum",
    "GradientNorm",
    "Minimizer",
    "NoisyMinimum",
    "PerturbedMinimum",
    "Query",
]
