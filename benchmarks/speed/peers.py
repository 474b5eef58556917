"""The steps of `work` by other libraries, each used as its own documentation does."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.speed.timing import Absent
from benchmarks.speed.work import BEND, CLASSES, MOMENTUM, RATE, UNITS, Work, losses
from l2p.models import INTERCEPT_COLUMN
from l2p.models.mlp import HIDDEN_SCALE

NOISE_MULTIPLIER = 1.0


def imported(name: str) -> Any:
    """A module of the extra `bench`; `Absent` where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = __import__(name)
    except ImportError:
        raise Absent.of(name) from None
    if name == "torch":
        module.set_num_threads(1)
    return module


def jax_privacy_steps(work: Work) -> Callable[[], np.ndarray]:
    """Clipped gradients and Gaussian noise by jax-privacy, the descent by optax.

    Full batches are steps of one compiled loop. Poisson batches come from its strategy on the host, padded to a
    multiple of 32 rows, and each is one call of a compiled step.
    """
    imported("jax_privacy")
    from jax_privacy import batch_selection, clipping, noise_addition

    def mean_loss(params: jax.Array, table: jax.Array, labels: jax.Array) -> jax.Array:
        return losses(work.model, params, table, labels).mean()

    gradient = clipping.clipped_grad(
        mean_loss, l2_clip_norm=work.clip_norm, normalize_by=work.read_rows, batch_argnums=(1, 2)
    )
    stddev = NOISE_MULTIPLIER * work.clip_norm / work.read_rows if work.private else 0.0
    noise, optimizer = noise_addition.gaussian_privatizer(stddev=stddev, prng_key=0), optax.sgd(RATE, MOMENTUM)
    start = work.start()
    first = start, noise.init(start), optimizer.init(start)

    def step(state: tuple, table: jax.Array, labels: jax.Array, padding: jax.Array | None = None) -> tuple:
        params, noise_state, momentum = state
        clipped = gradient(params, table, labels, **({} if padding is None else {"is_padding_example": padding}))
        noised, noise_state = noise.update(clipped, noise_state)
        update, momentum = optimizer.update(noised, momentum)
        return optax.apply_updates(params, update), noise_state, momentum

    if work.batch is None:
        table, labels = jnp.asarray(work.table), jnp.asarray(work.labels)

        @jax.jit
        def descend(table: jax.Array, labels: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda state, _: (step(state, table, labels), None), first, length=work.steps)[0][0]

        return lambda: descend(table, labels).block_until_ready()

    strategy = batch_selection.CyclicPoissonSampling(work.batch / work.num_rows, work.steps)
    compiled = jax.jit(step)

    def run() -> jax.Array:
        state = first
        for chosen in strategy.batch_iterator(work.num_rows, rng=0):
            lines = batch_selection.pad_to_multiple_of(chosen, 32)
            state = compiled(state, work.table[lines], work.labels[lines], lines == -1)
        return state[0].block_until_ready()

    return run


def torch_model(work: Work) -> tuple[Any, Any, Callable[[], np.ndarray]]:
    """The model as a module, its loss as a criterion, and its params as l2p orders them."""
    torch = imported("torch")
    functional = torch.nn.functional
    start = np.array(work.start())

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(work.num_columns, UNITS, bias=False)
            self.output = torch.nn.Linear(UNITS + 1, 1, bias=False)

        def forward(self, table: Any) -> Any:
            units = torch.tanh(0.5 * HIDDEN_SCALE * self.hidden(table))
            constant = torch.full((len(table), 1), INTERCEPT_COLUMN)
            return self.output(torch.cat([units, constant], 1))

    class Loss(torch.nn.Module):
        reduction = "mean"  # Opacus' ghost clipping sets it to "none"

        def forward(self, margins: Any, labels: Any) -> Any:
            if work.model.startswith("softmax"):
                return functional.cross_entropy(margins, labels.long(), reduction=self.reduction)
            if work.model != "svm":
                return functional.binary_cross_entropy_with_logits(margins.squeeze(1), labels, reduction=self.reduction)
            signed = (2.0 * labels - 1.0) * margins.squeeze(1)
            bend = (1.0 + BEND - signed) ** 2 / (4.0 * BEND)
            losses = torch.where((1.0 - signed).abs() <= BEND, bend, (1.0 - signed).clamp(min=0.0))
            return losses.mean() if self.reduction == "mean" else losses

    if work.model == "mlp":
        module = Hidden()
        pieces = start[: -UNITS - 1].reshape(-1, UNITS).T, start[None, -UNITS - 1 :]
    else:
        outputs = CLASSES if work.model.startswith("softmax") else 1
        module = torch.nn.Linear(work.num_columns, outputs, bias=False)
        pieces = (start.reshape(-1, outputs).T,)
    with torch.no_grad():
        for parameter, piece in zip(module.parameters(), pieces, strict=True):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(piece)))
    parameters = list(module.parameters())
    return module, Loss(), lambda: np.concatenate([parameter.detach().numpy().T.ravel() for parameter in parameters])


def opacus_steps(work: Work, loader: bool = True, mode: str = "hooks") -> Callable[[], np.ndarray]:
    """DP-SGD by Opacus' engine. A run goes on where the one before it ended.

    Args:
      work: the steps.
      loader: whether rows come from its Poisson data loader, as in its documentation, or are picked from tensors.
      mode: how gradients of rows are formed; "ghost" forms none.
    """
    torch, opacus = imported("torch"), imported("opacus")
    torch.manual_seed(0)
    table, labels = torch.from_numpy(work.table), torch.from_numpy(work.labels)
    module, loss, params = torch_model(work)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    dataset = torch.utils.data.TensorDataset(table, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, optimizer, *criterion, batches = opacus.PrivacyEngine().make_private(
            module=module,
            optimizer=optimizer,
            criterion=loss,
            data_loader=torch.utils.data.DataLoader(dataset, batch_size=work.read_rows),
            noise_multiplier=NOISE_MULTIPLIER if work.private else 0.0,
            max_grad_norm=work.clip_norm,
            grad_sample_mode=mode,
        )
    loss = criterion[0] if criterion else loss
    endless = forever(batches) if loader else picked(torch, work, table, labels)

    def run() -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for features, targets in itertools.islice(endless, work.steps):
                optimizer.zero_grad()
                loss(module(features), targets).backward()
                optimizer.step()
        return params()

    return run


def forever(batches: Any) -> Iterator:
    """The batches of epoch after epoch."""
    while True:
        yield from batches


def picked(torch: Any, work: Work, table: Any, labels: Any) -> Iterator:
    """All rows, or Poisson batches, picked from tensors."""
    while True:
        if work.batch is None:
            yield table, labels
        else:
            lines = torch.nonzero(torch.rand(work.num_rows) < work.batch / work.num_rows).squeeze(1)
            yield table[lines], labels[lines]


#: Per library what makes its run ready, and the steps of one that is timed, of full batches and of others.
STEPS: dict[str, tuple[Callable[[Work], Callable[[], Any]], int, int]] = {
    "jax-privacy": (jax_privacy_steps, 10, 50),
    "Opacus": (opacus_steps, 1, 10),
    "Opacus, rows in memory": (lambda work: opacus_steps(work, loader=False), 2, 20),
    "Opacus, ghost clipping": (lambda work: opacus_steps(work, loader=False, mode="ghost"), 2, 20),
}
