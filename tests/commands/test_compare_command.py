"""`l2p compare` from the command line and from files: configurations, shards, merges, and what is refused."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

import l2p.compare.runner as compare_module
from l2p.base.errors import InputError
from l2p.checkpoints.checkpoint import find
from l2p.checkpoints.lookup import tuned_name
from l2p.checkpoints.method_name import MethodName
from l2p.commands.cli import main
from l2p.compare import results
from l2p.compare.config import CompareConfig, parse_shard, read_config
from l2p.protectors import HAND_DESIGNED

EXPERIMENTS = Path(__file__).resolve().parents[2] / "benchmarks" / "experiments"
FIELDS = {
    "data": "breast_cancer",
    "methods": ["noisygd", "nonprivate"],
    "epsilon": [0.5, 2.0],
    "delta": 1e-5,
    "seeds": 2,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The file of a small comparison."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.json"
    path.write_text(json.dumps(FIELDS))
    return path


@pytest.fixture
def compared(monkeypatch):
    """Arguments of the comparisons that `l2p compare` would run."""
    recorded = []
    monkeypatch.setattr(compare_module, "main", lambda *args: recorded.append(args))
    return recorded


def test_a_configuration_gives_options_and_those_beside_it_win(compared, tiny, tmp_path):
    words = ["--config", str(tiny), "--out", str(tmp_path), "--seeds=5", "--methods", "agd,census"]
    assert main(["compare", *words]) == 0
    assert main(["compare", f"--config={tiny}", "--out", str(tmp_path), "--shard", "2/3"]) == 0
    assert main(["compare", "--config", str(tiny), "--out", str(tmp_path), "--merge"]) == 0
    assert main(["compare", "--config", str(tiny), "--out", str(tmp_path), "--merge", "a", "b"]) == 0
    plain = read_config(tiny, out=tmp_path)
    assert plain == CompareConfig(
        "breast_cancer", tmp_path, methods=("noisygd", "nonprivate"), epsilon=(0.5, 2.0), delta=1e-5, seeds=2
    )
    assert compared == [
        (dataclasses.replace(plain, seeds=5, methods=("agd", "census")), None, None),
        (plain, (2, 3), None),
        (plain, None, ()),
        (plain, None, (Path("a"), Path("b"))),
    ]


def test_every_option_can_be_written_in_a_file(compared, tmp_path):
    everything = CompareConfig(
        *(
            "table.csv",
            tmp_path / "out",
            Path("schema.json"),
            "logistic",
            ("a", "b:tuned"),
        ),
        *((0.1, 1e-05), 1e-6, 3, "replace_one", "gdp", "adult", (Path("b.csv"), Path("c.csv")), 0.01, 3, 1.5),
        separator=";",
        header=False,
        columns="a,b",
        encoding="latin-1",
        decimal=",",
        ignore=("c",),
    )
    plain = {name: str(x) if isinstance(x, Path) else x for name, x in dataclasses.asdict(everything).items()}
    plain["public"] = list(map(str, everything.public))
    path = tmp_path / "everything.json"
    path.write_text(json.dumps(plain))
    assert read_config(path) == everything
    assert main(["compare", "--config", str(path)]) == 0
    assert main(["compare", "--config", str(path), "--public-share", "0.5"]) == 0  # those on the command line win
    assert compared == [(everything, None, None), (dataclasses.replace(everything, public_share=0.5), None, None)]


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_experiments_name_methods_that_there_are(path, compared, tmp_path):
    config = read_config(path, out=tmp_path)
    assert main(["compare", "--config", str(path), "--out", str(tmp_path)]) == 0
    assert compared == [(config, None, None)]
    for name in config.methods:
        method_name = MethodName.parse(name)
        if method_name.tuned and method_name.base in HAND_DESIGNED:
            # `:tuned` is any shipped set's without `aux`.
            assert config.aux is None or find(tuned_name(method_name.base, config.model, config.aux)), name
        else:
            assert method_name.base in HAND_DESIGNED or find(method_name.base), name


def test_the_experiment_of_the_readme_is_the_one_that_was_committed():
    rows = results.read(EXPERIMENTS.parent / "results" / "ipums_br" / "results.csv")
    config = read_config(EXPERIMENTS / "ipums_br.json", out=Path("out"))
    cells = [(m, epsilon, seed) for m in config.methods for epsilon in config.epsilon for seed in range(config.seeds)]
    assert [results.cell(row) for row in rows] == cells


@pytest.mark.long
def test_two_processes_share_a_folder(tiny, tmp_path):
    def start(shard):
        words = ["compare", "--config", str(tiny), "--out", str(tmp_path), "--shard", shard]
        return subprocess.Popen([sys.executable, "-m", "l2p", *words], stdout=subprocess.PIPE, text=True)

    processes = [start(shard) for shard in ("1/2", "2/2")]
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0
        assert "4 of 8 cells" in output
    assert not (tmp_path / "results.csv").exists()
    assert main(["compare", "--config", str(tiny), "--out", str(tmp_path), "--merge"]) == 0
    rows = results.read(tmp_path / "results.csv")
    assert len(rows) == 8
    assert all(results.is_scored(row) for row in rows)
    assert "Missing" not in (tmp_path / "summary.md").read_text()
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--shard", "3/2"], "shard '3/2' is not one of n shares"),
        (["--shard", "0/2"], "shard '0/2'"),
        (["--shard", "half"], "shard 'half'"),
        (["--shard", "1/2", "--merge"], "exclude each other"),
        (["--merge", "nowhere"], "nowhere holds no cells"),
        (["--merge"], "holds no cells"),
        (["--config", "nosuch.json"], "nosuch.json cannot be read"),
        (["--seeds", "many"], "seeds"),
        (["--seeds", "0"], "seeds is 0"),
        (["--epsilon", "-1"], "epsilon is -1.0"),
        (["--methods", "noisygd,nosuch"], "nosuch"),
        (["--methods", "noisygd:pretrained"], "no auxiliary set is named"),
    ],
)
def test_bad_options_cost_a_sentence(tiny, tmp_path, monkeypatch, capsys, words, phrase):
    monkeypatch.chdir(tmp_path)
    config_option = [] if words[0] == "--config" else ["--config", str(tiny)]
    assert main(["compare", *config_option, "--out", str(tmp_path / "out"), *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert phrase in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("{", "cannot be read"),
        ("[1]", "does not hold a JSON object"),
        ('{"dat": "adult"}', "names dat, which l2p does not know; choose among separator, header"),
        ('{"data": 3}', "data is 3, but it has to be a text"),
        ('{"seeds": 2.5}', "seeds is 2.5, but it has to be a whole number"),
        ('{"seeds": true}', "seeds is true, but it has to be a whole number"),
        ('{"epsilon": 0.1}', "epsilon is 0.1, but it has to be a list of numbers"),
        ('{"epsilon": ["0.1"]}', "it has to be a list of numbers"),
        ('{"methods": "agd"}', 'methods is "agd", but it has to be a list of texts'),
        ('{"epsilon": [0, "1"]}', "it has to be a list of numbers"),
        ('{"aux": 3}', "aux is 3, but it has to be a text or null"),
        ('{"delta": null}', "delta is null, but it has to be a number"),
    ],
)
def test_a_file_that_is_no_configuration_costs_a_sentence(tmp_path, capsys, text, phrase):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_config(path, data="adult", out=tmp_path)
    assert phrase in str(refused.value)
    assert main(["compare", "--config", str(path), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"{refused.value}\n"


def test_a_configuration_without_data_is_refused(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="lacks data and out"):
        read_config(path)


def test_shards_are_read():
    assert parse_shard("1/1") == (1, 1)
