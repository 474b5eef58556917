"""The config of a training on a user's own tables: the start's, within what the tables have."""

import chex
import numpy as np

from l2p.checkpoints import checkpoint
from meta_train.recipes import own, resolve
from meta_train.tasks import own_tables
from meta_train.training.methods import method_for
from meta_train.training.starting_points import starting_point


def table_of(features, rows=1000, kind="binary", classes=2, name="a"):
    """A table that is known, since its shape is looked up."""
    x, y = np.zeros((rows, features), np.float32), np.zeros(rows, np.float32)
    return own_tables.OwnTable(name, f"{features:016d}" * 4, x, y, kind, classes, rows, 0, "")


def test_the_config_is_that_of_the_start_within_what_the_tables_have():
    config = own.config_for("universal", [table_of(84), table_of(145)])
    shipped = resolve.resolve("universal")
    # Tables are filled up to 150 columns, which are at most twice their own.
    assert (config.tasks.num_features, config.tasks.rows, config.start.warm_start) == ((150,), 512, "universal")
    both = f"{table_of(84).source}+{table_of(145).source}"
    assert (config.tasks.sources, config.tasks.models) == ((both,), ("logistic",))
    fields = ("log_signal", "steps", "tasks", "protector", "excess_floor", "fresh_shares", "signal_power", "ridge")
    assert {field: config.flat()[field] for field in fields} == {field: shipped.flat()[field] for field in fields}
    assert own.config_for("universal", [table_of(1)]).tasks.num_features == (1,)
    # Networks anew, on the constants.
    anew = own.config_for("control-universal", [table_of(84)])
    assert (anew.start.protector, anew.start.warm_start, anew.name) == ("filter", "control-universal", "universal-own")
    assert anew.learner.learning_rate == shipped.learner.learning_rate == 2 * config.learner.learning_rate


def test_what_trains_every_model_is_fine_tuned_for_all_that_tables_have_in_one_training():
    kinds = (("binary", 2), ("multiclass", 4), ("regression", None), ("multiclass", 19))
    tables = [table_of(20 + place, kind=kind, classes=classes) for place, (kind, classes) in enumerate(kinds)]
    for table in tables:
        own_tables.keep(table)
    config = own.config_for("universal", tables)
    assert config.tasks.models == ("logistic", "softmax:4", "square", "softmax:19")
    assert config.tasks.num_features == (24, 24, 24, 24)
    assert config.tasks.sources == tuple(table.source for table in tables)
    assert [config.tasks.find_model(shape).name for shape in config.shapes] == [
        "logistic",
        "softmax",
        "square",
        "softmax",
    ]


def test_few_minutes_train_the_constants_of_the_start_alone_and_judge_them_beside_the_start():
    table = table_of(20)
    own_tables.keep(table)
    config = own.constants_of(own.config_for("universal", [table]))
    assert (config.start.protector, config.start.warm_start) == ("control_line", "universal")
    start = starting_point(config)
    chex.assert_trees_all_equal(start, checkpoint.load("control-universal").protector)
    evaluator = method_for(config, start).evaluator
    chex.assert_trees_all_equal(evaluator._start, checkpoint.load("universal").protector)
    assert evaluator._stand_in[0].name == "control-universal"
    assert own.constants_of(own.config_for("control-minibatch", [table_of(20)])).start.protector == "control_eigen"


def test_what_was_made_for_one_kind_of_target_starts_from_that():
    batches = own.config_for("minibatch", [table_of(20)])
    assert (batches.tasks.models, batches.tasks.num_features) == (("logistic",), (24,))
    assert batches.tasks.sampling_rates == (0.05,)
