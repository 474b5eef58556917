"""Untrusted checkpoints on the command line and in runs, and protectors that could not be loaded again."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.commands.cli import main
from l2p.protectors import HAND_DESIGNED, PrivateMeta
from l2p.protectors.fields import MAX_LOG
from l2p.tables.schema import Number, Schema, Target
from meta_train.training.untrained import BUILDERS
from tests.checkpoints.damaged_files import BUDGET, CARD, FILES

#: Of the table that the command line names.
SCHEMA = Schema({"age": Number(0, 120)}, Target("y", classes=(0, 1)))


@pytest.mark.parametrize("case", FILES)
def test_the_command_line_refuses_a_hostile_file_in_one_line_before_it_opens_the_table(tmp_path, capsys, case):
    path = FILES[case](tmp_path / "mine.safetensors")
    SCHEMA.write(tmp_path / "schema.json")
    words = ["--protector", path, "--data", tmp_path / "absent.csv", "--schema", tmp_path / "schema.json"]
    code = main(["apply", *map(str, words), "--epsilon", "1", "--delta", "1e-6", "--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "absent.csv" not in err


def test_private_meta_declares_what_its_inner_protector_asks(tmp_path):
    inner = HAND_DESIGNED["agd_gumbel"](BUDGET)
    protector = dataclasses.replace(HAND_DESIGNED["private_meta"](BUDGET), inner=inner)
    assert isinstance(protector, PrivateMeta)
    assert protector.mechanisms == ("gaussian", "gumbel")
    checkpoint.save(protector, tmp_path / "mine.safetensors", CARD)
    assert lookup.resolve(str(tmp_path / "mine.safetensors"), BUDGET, "logistic").accountant == "rdp"


def test_a_protector_that_could_not_be_loaded_again_is_not_saved(tmp_path):
    for protector in (HAND_DESIGNED["noisygd"](BUDGET).replace(num_steps=-3), BUILDERS["agd"](jax.random.key(0))):
        bad = protector if protector.num_steps < 0 else protector.replace(log_increase=jnp.array([jnp.nan]))
        with pytest.raises(InputError, match="cannot be saved, because its"):
            checkpoint.save(bad, tmp_path / "mine.safetensors", CARD)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_steps_that_diverge_end_in_a_sentence_and_leave_no_result(tmp_path, capsys):
    control = BUILDERS["control"](jax.random.key(0))
    rate = jnp.zeros((1, 2)).at[0].set(0.9 * MAX_LOG)  # and twice that at the end
    path = tmp_path / "mine.safetensors"
    checkpoint.save(control.replace(projector=control.projector.replace(log_learning_rate=rate)), path, CARD)
    table = tmp_path / "ward.csv"
    numbers = np.random.default_rng(0).integers(0, 120, 900)
    table.write_text("age,y\n" + "".join(f"{number},{number % 2}\n" for number in numbers))
    SCHEMA.write(tmp_path / "schema.json")
    words = ["--protector", str(path), "--data", str(table), "--schema", str(tmp_path / "schema.json")]
    code = main(["apply", *words, "--epsilon", "1", "--delta", "1e-6", "--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "numbers that are not finite" in err
    assert "what it spent stays spent" in err
    assert not (tmp_path / "out").exists()
