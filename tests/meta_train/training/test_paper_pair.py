"""Cards of the L2P paper's pair: how far the scheduler's head still moved, and what the paper has otherwise."""

import jax
import pytest

from l2p.checkpoints import checkpoint
from l2p.protectors import Stepwise
from meta_train.config import Constrained, Plain
from meta_train.recipes import resolve
from meta_train.training.deviations import deviations
from meta_train.training.loop import meta_train
from meta_train.training.settling import HEAD, MOVED, head_moved, head_of
from meta_train.training.shipping import ship
from meta_train.training.starting_points import starting_point
from meta_train.training.untrained import BUILDERS
from meta_train.training.watch import Watch

SIZES = {"steps": 4, "tasks": 8, "rows": 32, "eval_every": 2, "eval_tasks": 8, "num_features": (3,)}
CONFIG = Constrained.of("tiny", "paper", source="breast_cancer", accountant="ctcdp", **SIZES)


def start(name: str, **changes):
    return BUILDERS[name](jax.random.key(0)).replace(**changes)


def test_the_heads_change_is_told_by_tenths_of_the_training():
    pair = start("paper")
    assert head_of(pair) == {HEAD: [0.0] * 21}
    assert head_of(start("noisygd")) == head_moved([{"step": 0}]) == {}
    # 40 steps away from zero, then none.
    lines = [{"step": step, HEAD: [min(step + 1, 40) / 40.0] * 21} for step in range(100)]
    assert head_moved(lines)[MOVED] == pytest.approx([0.25] * 4 + [0.0] * 6)
    # A log that has the head on every 25th line comes to the same on average.
    assert sum(head_moved(lines[24::25])[MOVED]) == pytest.approx(1.0)


def test_a_card_tells_what_the_paper_has_otherwise(tmp_path):
    path = ship(CONFIG, tmp_path, start("paper"), {}, 0.0, (3,))
    sentences = checkpoint.load(path).card["deviations"]
    assert any("Algorithm 2 buys" in sentence for sentence in sentences)
    assert any("whole runs of 50 steps" in sentence for sentence in sentences)
    batches = CONFIG.but(unroll=20, constraint="soft", inner_gradient=False)
    closer = deviations(batches, start("paper_norm", num_steps=1000))
    assert any("Algorithm 2 squares" in sentence for sentence in closer)
    assert len(closer) == len(sentences) - 3
    assert not deviations(Plain.of("tiny", "noisygd"), start("noisygd"))


def test_algorithm_2_with_its_private_norm_has_a_recipe():
    config = resolve.resolve("paper-norm-adult")
    assert isinstance(config, Constrained)
    assert config.but(name="paper-adult", protector="paper") == resolve.resolve("paper-adult")
    pair = starting_point(config)
    assert isinstance(pair, Stepwise)
    assert pair.norm_query is not None
    assert pair.mechanisms == start("paper").mechanisms  # it needs no other theorem


def test_the_papers_lengths_have_a_recipe():
    config = resolve.resolve("paper-long-adult")
    assert not any("batches of" in sentence for sentence in deviations(config, starting_point(config)))
    shorter = resolve.resolve("paper-adult")
    assert any("5 batches of 10 steps" in sentence for sentence in deviations(shorter, starting_point(shorter)))


@pytest.mark.long
def test_a_training_of_the_pair_writes_both(tmp_path):
    lines: list[str] = []
    card = checkpoint.load(meta_train(CONFIG, tmp_path, Watch(say=lines.append))).card
    assert len(card["held_out"][MOVED]) == 10
    assert f"{card['held_out'][MOVED][-1]:.1%} over the last tenth" in lines[-1]
    assert card["deviations"] == deviations(CONFIG, start("paper"))
