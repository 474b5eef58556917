"""A comparison in which a fold stands for its protector: under the protector's name, and told once."""

import json

import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.leaderboard import page
from l2p.compare.runner import main
from l2p.privacy.budget import Budget
from l2p.protectors import HAND_DESIGNED
from tests.checkpoint_files import write_checkpoint

SENTENCE = "whole on breast_cancer: whole-fold-2, made without breast_cancer."


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A comparison of a protector that was made from the data, as was the first of its two folds."""
    checkpoints = tmp_path / "made"
    checkpoints.mkdir()
    monkeypatch.setattr(checkpoint, "FOLDERS", (checkpoints,))
    protector = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    # Tasks of 40 columns or more: there is something else to note.
    card = {"range": {"log_signal": [0.7, 8.7], "num_features": [40, 50]}}
    for name, sources in (
        ("whole", ["adult", "breast_cancer"]),
        ("whole-fold-1", ["breast_cancer"]),
        ("whole-fold-2", ["adult"]),
    ):
        write_checkpoint(checkpoints, name, protector, sources=sources, **card)
    out = tmp_path / "results" / "ours"
    return CompareConfig("breast_cancer", out, methods=("whole",), epsilon=(0.5, 2.0), delta=1e-5, seeds=1)


@pytest.mark.slow
def test_the_fold_runs_under_the_protectors_name_and_is_told_once(config, capsys):
    main(config)
    rows, inputs = results.read(config.out / "results.csv"), json.loads((config.out / "inputs.json").read_text())
    assert {row["method"] for row in rows} == {"whole"}
    assert inputs["protectors"] == {"whole": checkpoint.digest("whole-fold-2")}
    for row in rows:
        held, warning = results.split_note(row["note"])
        assert held == "whole-fold-2, made without breast_cancer"
        assert "30 features are outside" in warning
        assert results.is_scored(row)
    printed = capsys.readouterr().out
    assert printed.replace("\n", " ").count(SENTENCE) == 1
    assert "[whole-fold-2" not in printed
    summary = (config.out / "summary.md").read_text()
    assert summary.count(SENTENCE) == 1
    board = page(config.out.parent)
    assert board.count(SENTENCE) == 1
    assert "| whole | learned |" in board
    assert "--methods whole " in board
    main(config)  # resumed: the fold is the same
    assert results.read(config.out / "results.csv") == rows


@pytest.mark.slow
def test_results_of_one_fold_are_not_mixed_with_those_of_another(config):
    main(config)
    write_checkpoint(checkpoint.FOLDERS[0], "whole-fold-1", sources=["adult"])
    with pytest.raises(InputError, match="checkpoint of whole differed"):
        main(config)


def test_without_a_fold_that_never_saw_the_data_nothing_runs(config):
    write_checkpoint(checkpoint.FOLDERS[0], "whole-fold-2", sources=["breast_cancer"])
    with pytest.raises(InputError, match="'whole' was made from breast_cancer"):
        main(config)
    assert not config.out.exists()
