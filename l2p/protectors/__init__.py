"""Methods by name. Hand-designed ones are listed here; tuned and learned ones are loaded from checkpoints."""

from l2p.privacy.events import Adjacency
from l2p.protectors.adadp import AdaDP, adadp
from l2p.protectors.adassp import AdaSSP, adassp
from l2p.protectors.agd import AGD, agd, agd_gumbel
from l2p.protectors.amp import ApproximateMinima, amp
from l2p.protectors.auto_clip import AutoClip, auto_clip
from l2p.protectors.eigenbasis import Eigenbasis
from l2p.protectors.geometry import PublicGeometry
from l2p.protectors.gradient_descent import dpsgd, noisygd
from l2p.protectors.hand_designed import HandDesigned
from l2p.protectors.hyfree import HyFree, hyfree
from l2p.protectors.lstm import LSTMProjector, LSTMScheduler
from l2p.protectors.nonprivate import nonprivate
from l2p.protectors.norm_query import NormQuery
from l2p.protectors.objpert import ObjectivePerturbation, objpert, objpert_paper
from l2p.protectors.outpert import OutputPerturbation, outpert, outpert_paper
from l2p.protectors.paper_sgd import sgd_adv, sgd_ma
from l2p.protectors.private_meta import PrivateMeta, private_meta
from l2p.protectors.projectors import MixProjector, Optax
from l2p.protectors.row_length import RowLength
from l2p.protectors.schedulers import Decaying, ShareScheduler
from l2p.protectors.stepwise import Centering, Stepwise

#: Methods that need no checkpoint.
HAND_DESIGNED: dict[str, HandDesigned] = {
    "noisygd": HandDesigned(noisygd),
    "dpsgd": HandDesigned(dpsgd),
    "sgd_adv": HandDesigned(sgd_adv, "strong_composition", Adjacency.REPLACE_ONE, "paper"),
    "sgd_ma": HandDesigned(sgd_ma, "moments", Adjacency.ADD_REMOVE, "paper"),
    "agd": HandDesigned(agd, form="paper"),
    "agd_gumbel": HandDesigned(agd_gumbel),
    "auto_clip": HandDesigned(auto_clip, form="rival"),
    "adadp": HandDesigned(adadp, form="rival"),
    "hyfree": HandDesigned(hyfree, form="rival"),
    "adassp": HandDesigned(adassp, form="rival"),
    "amp": HandDesigned(amp, form="rival"),
    "nonprivate": HandDesigned(nonprivate, form="reference"),
    "objpert": HandDesigned(objpert),
    "objpert_paper": HandDesigned(objpert_paper, "basic", form="paper"),
    "outpert": HandDesigned(outpert),
    "outpert_paper": HandDesigned(outpert_paper, "gdp", Adjacency.REPLACE_ONE, "paper"),
    "private_meta": HandDesigned(private_meta),
}

#: Every class that a checkpoint may name.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        AGD,
        AdaDP,
        AdaSSP,
        ApproximateMinima,
        AutoClip,
        Centering,
        Decaying,
        Eigenbasis,
        HyFree,
        LSTMProjector,
        LSTMScheduler,
        MixProjector,
        NormQuery,
        ObjectivePerturbation,
        Optax,
        OutputPerturbation,
        PrivateMeta,
        PublicGeometry,
        RowLength,
        ShareScheduler,
        Stepwise,
    )
}
