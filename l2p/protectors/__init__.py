"""Methods by name. Hand-designed ones are listed here; tuned and learned ones are loaded from checkpoints."""

from l2p.protectors.adadp import AdaDP, adadp
from l2p.protectors.agd import AGD, agd
from l2p.protectors.auto_clip import AutoClip, auto_clip
from l2p.protectors.gradient_descent import dpsgd, noisygd
from l2p.protectors.hand_designed import HandDesigned
from l2p.protectors.hyfree import HyFree, hyfree
from l2p.protectors.lstm import LSTMProjector, LSTMScheduler
from l2p.protectors.nonprivate import nonprivate
from l2p.protectors.projectors import MixProjector, Optax
from l2p.protectors.schedulers import Decaying, ShareScheduler
from l2p.protectors.stepwise import Centering, Stepwise

#: Methods that need no checkpoint.
HAND_DESIGNED: dict[str, HandDesigned] = {
    "noisygd": HandDesigned(noisygd),
    "dpsgd": HandDesigned(dpsgd),
    "agd": HandDesigned(agd),
    "auto_clip": HandDesigned(auto_clip),
    "adadp": HandDesigned(adadp),
    "hyfree": HandDesigned(hyfree),
    "nonprivate": HandDesigned(nonprivate),
}

#: Every class that a checkpoint may name.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        AGD,
        AdaDP,
        AutoClip,
        Centering,
        Decaying,
        HyFree,
        LSTMProjector,
        LSTMScheduler,
        MixProjector,
        Optax,
        ShareScheduler,
        Stepwise,
    )
}
