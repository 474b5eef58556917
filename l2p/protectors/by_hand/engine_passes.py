"""Noise on the result of passes that another engine has taken, as `l2p.release.engine` adds it."""

from typing import ClassVar, Literal, Self, cast

from l2p.base import struct
from l2p.privacy.budget import Budget
from l2p.privacy.sensitivity.engine_run import EngineRun
from l2p.protectors.by_hand.bolt_on import BoltOn, noise_for
from l2p.queries.pass_descent import EngineResult, PassDescent, check_adjacency


@struct.dataclass
class EnginePasses(BoltOn):
    """Bolt-on SGD whose passes are over: its settings are declared, and it asks for their result alone."""

    query: ClassVar[type[PassDescent]] = EngineResult
    streams = False  # pyrefly: ignore[bad-override]

    @classmethod
    def declared(cls, run: EngineRun, budget: Budget, accountant: str | None) -> Self:
        """The protector of a declaration: with pure noise where delta is 0 or accountant `basic` is asked for.

        Raises:
          InputError: the adjacency has no proof.
        """
        check_adjacency(budget.adjacency)
        return cls(
            run.num_rows,
            run.num_passes,
            run.batch_size,
            cast(Literal["constant"], run.rule),
            run.step_size,
            run.power,
            run.ridge,
            run.radius,
            run.share_averaged,
            cast(Literal["fresh"], run.order),
            noise_for("basic" if budget.delta == 0 and accountant is None else accountant),
            run.norm_bound,
            cast(Literal["logistic"], run.loss),
            shift=run.shift,
        )
