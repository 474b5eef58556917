"""Networks of tasks: losses as users bring them, on rows that lie in lines."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.models.custom import CustomLoss
from l2p.oracle.setup import Setup
from l2p.privacy.cap.filter import Filter
from meta_train.config import OfNetworks, ThroughNetworks
from meta_train.evaluation.budgets import ByMu
from meta_train.recipes.resolve import resolve
from meta_train.tasks import networks
from meta_train.tasks.sources import families
from meta_train.training.loop import meta_train

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("tanh:5,3:4", 6 * 5 + 6 * 3 + 4 * 4),
        ("head:5:2", 6 * 2),
        ("adapter:5:3", 4 * 2 + 2 * 5 + 6 * 3),
        ("line:2,3:4", 4 * 2 + 7 * 3 + 7 * 4),
    ],
)
def test_what_is_trained_lies_in_a_vector_from_which_runs_start(name, size):
    model = networks.find(name, 4 if name == "adapter:5:3" else 5)
    row = jnp.append(jnp.linspace(-1.0, 1.0, model.rows.size - 1), 1.0)
    start = model.init(model.rows.size)
    assert start.shape == (size,)
    logits = model.function.logits(model.as_given(start), row[:-1])
    np.testing.assert_allclose(model.loss(start, row, row[-1]), -jax.nn.log_softmax(logits)[1], rtol=1e-5)
    assert model == networks.find(name, model.rows.size - 1)
    assert hash(model) == hash(networks.find(name, model.rows.size - 1))
    assert model.labels == tuple(range(model.function.num_classes))


def test_an_adapter_begins_as_the_network_that_it_adapts():
    model = networks.find("adapter:5:3", 4)
    params = model.as_given(model.init(5))
    moved = params | {"in": 9.0 * params["in"]}
    row = jnp.ones(4)
    np.testing.assert_array_equal(model.function.logits(params, row), model.function.logits(moved, row))
    assert any((jax.grad(lambda p: model.function.logits(p, row).sum())(params)["out"] != 0).ravel())


def test_convolutions_are_those_of_jax():
    model = networks.find("image:2,3:4", 25)
    params, image = model.as_given(model.init(26)), np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    out = image[None, :, :, None]
    for layer, channels in zip(params["layers"], (1, 2), strict=False):
        # A patch lists the places of a line within each of the lines.
        kernel = layer["w"].reshape(3, 3, channels, -1).swapaxes(0, 1)
        dimensions = ("NHWC", "HWIO", "NHWC")
        out = jax.lax.conv_general_dilated(out, kernel, (2, 2), [(1, 1), (1, 1)], dimension_numbers=dimensions)
        out = jax.nn.relu(out + layer["b"][None, None, None])
    logits = out.reshape(-1) @ params["layers"][-1]["w"] + params["layers"][-1]["b"]
    np.testing.assert_allclose(model.function.logits(params, image.ravel()), logits, rtol=1e-5)


def test_images_that_are_not_square_are_refused():
    with pytest.raises(InputError, match="not square"):
        networks.find("image:4:3", 60)


@pytest.mark.parametrize("name", ["relu", "relu:64", "sigmoid:64:2", "relu:64,:2", "relu:0:2", "relu:64:2:3"])
def test_a_name_of_no_network_is_refused(name):
    with pytest.raises(InputError, match=r"network .* is unknown"):
        networks.find(name, 4)


@pytest.mark.long
def test_rows_lie_in_lines_and_runs_are_told_the_signal_of_their_task():
    family = networks.InLines(families("synthetic:classes:3", fresh_rows=True)[0])
    model = networks.find("relu:4:3", 6)
    draw = jax.jit(lambda key: family.sample(key, model, 24, 200, 6, (1.0, 5.0)))
    batch = draw(KEY)
    assert batch.rows.x.shape == (24, 200, 7)
    np.testing.assert_array_equal(batch.rows.x[:, :, -1], batch.rows.y)
    assert set(np.unique(batch.scored.y)) == {0.0, 1.0, 2.0}
    assert not (batch.rows.x == batch.scored.x).all((1, 2)).any()
    assert (batch.best_loss == 0).all()
    is_scaled = np.asarray(batch.rows.x.min((1, 2)) < 0)
    assert 6 <= is_scaled.sum() <= 18
    deviations = np.asarray(batch.rows.x)[is_scaled][:, :, :-1].std(1)
    np.testing.assert_allclose(deviations[deviations > 0.5], 1.0, rtol=1e-3)
    _, setups = ByMu("gdp", "multiclass").simulate(batch, model, capped=True)
    np.testing.assert_allclose(jax.vmap(lambda setup: setup.log_signal)(setups), batch.log_signal, atol=1e-5)


def test_a_network_of_more_params_needs_more_rows_for_as_much_signal():
    small, large = (CustomLoss.stand_in(size, 3) for size in (100, 10_000))
    budget = l2p.Budget(1.0, 1e-5)
    prices = Filter("gdp", budget).price_list()
    signal = [
        float(Setup.create(model, budget.adjacency, prices, rows).log_signal)
        for model, rows in ((small, 1000), (large, 1000), (large, 10_000))
    ]
    assert signal[0] - signal[1] == pytest.approx(np.log(10.0), abs=1e-5)
    assert signal[0] == pytest.approx(signal[2], abs=1e-5)


#: Tasks that are quickly compiled.
SMALL = {"num_features": (6,), "sources": ("synthetic:classes:3",), "models": ("relu:4:3",), "tasks": 8, "rows": 64}


@pytest.mark.long
def test_a_method_is_tuned_on_networks_and_then_trains_a_users_own(tmp_path):
    config = OfNetworks.of("mine", "dp_adam", coefficients=2, num_steps=3, steps=2, eval_tasks=8, pairs=1, **SMALL)
    path, half_path = meta_train(config, tmp_path / "all"), meta_train(config.but(kept=0.5), tmp_path / "half")
    tuned, half = (checkpoint.load(str(path)).protector for path in (path, half_path))
    start = l2p.load("dp_adam", l2p.Budget(1.0, 1e-5))
    assert tuned.num_steps == half.num_steps == 3
    decay, decay_of_half = (protector.projector.hyperparameters["b1"] for protector in (tuned, half))
    untuned = jnp.append(start.projector.hyperparameters["b1"], 0.0)
    assert (decay != untuned).any()
    np.testing.assert_allclose(decay_of_half, (decay + untuned) / 2, rtol=1e-6)
    data = {"x": np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)}
    result = l2p.private_train(
        data,
        str(path),
        l2p.Budget(1.0, 1e-5),
        model=lambda params, row: jnp.square(row["x"] - params).sum(),
        params=jnp.ones(2),
    )
    assert result.card.steps == 3


@pytest.mark.long
def test_a_network_learns_by_derivatives_of_runs_of_networks(tmp_path):
    config = ThroughNetworks.of("mine", "deep", num_steps=3, steps=2, eval_tasks=8, damping=10.0, **SMALL)
    lines = meta_train(config, tmp_path).with_name("log.jsonl").read_text().splitlines()
    assert [json.loads(line)["finite"] for line in lines] == [1.0, 1.0]
    trained = checkpoint.load(str(tmp_path / "mine.safetensors")).protector
    data = {"x": np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)}
    ends = [
        l2p.private_train(
            data,
            protector,
            l2p.Budget(1.0, 1e-5),
            model=lambda params, row: jnp.square(row["x"] - params["a"]).sum() + params["b"] ** 2,
            params={"a": jnp.ones(2), "b": jnp.ones(())},
            key=jax.random.key(0),
        ).params["b"]
        for protector in (trained, trained.replace(projector=trained.projector.replace(network=None)))
    ]
    assert ends[0] != ends[1]


def test_shipped_settings_are_of_networks_that_no_digits_were_among():
    config = resolve("dp_adam-tuned-custom-networks")
    assert config.tasks.all_models == ("custom",)
    assert not any("mnist" in source or "digits" in source for source in config.tasks.all_sources)
