"""Base of protectors that run another one and have its public properties."""

from l2p.models import Model
from l2p.privacy.cost.sampling import Sampler
from l2p.run.protector import Protector
from l2p.task.rows import Rows


class ProtectorWrapper(Protector):
    """A protector that asks the queries of `inner`, and changes its start or its result.

    Attributes:
      inner: the protector that runs.
    """

    inner: Protector

    @property
    def num_steps(self) -> int:  # type: ignore[override]
        return self.inner.num_steps

    @property
    def models(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.models

    @property
    def mechanisms(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.mechanisms

    @property
    def additive(self) -> bool:  # type: ignore[override]
        return self.inner.additive

    @property
    def sampler(self) -> Sampler:  # type: ignore[override]
        return self.inner.sampler

    @property
    def adaptive_noise(self) -> bool:  # type: ignore[override]
        return self.inner.adaptive_noise

    def check_model(self, model: Model) -> None:
        self.inner.check_model(model)

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        if self.inner.needs_public:
            self.inner.check_public(public, model, kind)
