"""Methods by name. Hand-designed ones are listed here; tuned and learned ones are loaded from checkpoints."""

from l2p.privacy.events import Adjacency
from l2p.protectors.adassp import AdaSSP, adassp
from l2p.protectors.agd import AGD, agd
from l2p.protectors.amp import ApproximateMinima, amp
from l2p.protectors.gradient_descent import dpsgd, noisygd
from l2p.protectors.hand_designed import HandDesigned
from l2p.protectors.lstm import LSTMProjector, LSTMScheduler
from l2p.protectors.nonprivate import nonprivate
from l2p.protectors.objpert import ObjectivePerturbation, objpert, objpert_paper
from l2p.protectors.outpert import OutputPerturbation, outpert, outpert_paper
from l2p.protectors.projectors import MixProjector, Optax
from l2p.protectors.schedulers import Decaying, ShareScheduler
from l2p.protectors.stepwise import Centering, Stepwise

#: Methods that need no checkpoint.
HAND_DESIGNED: dict[str, HandDesigned] = {
    "noisygd": HandDesigned(noisygd),
    "dpsgd": HandDesigned(dpsgd),
    "agd": HandDesigned(agd),
    "adassp": HandDesigned(adassp),
    "amp": HandDesigned(amp),
    "nonprivate": HandDesigned(nonprivate),
    "objpert": HandDesigned(objpert),
    "objpert_paper": HandDesigned(objpert_paper, "basic"),
    "outpert": HandDesigned(outpert),
    "outpert_paper": HandDesigned(outpert_paper, "gdp", Adjacency.REPLACE_ONE),
}

#: Every class that a checkpoint may name.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        AGD,
        AdaSSP,
        ApproximateMinima,
        Centering,
        Decaying,
        LSTMProjector,
        LSTMScheduler,
        MixProjector,
        ObjectivePerturbation,
        Optax,
        OutputPerturbation,
        ShareScheduler,
        Stepwise,
    )
}
