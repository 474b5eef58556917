"""The config of a training on a user's own tables: the start's, within what the tables have."""

import numpy as np

from meta_train.recipes import own, resolve
from meta_train.tasks import own_tables


def table_of(features, rows=1000, kind="binary", classes=2, name="a"):
    x, y = np.zeros((rows, features), np.float32), np.zeros(rows, np.float32)
    return own_tables.OwnTable(name, f"{features:016d}" * 4, x, y, kind, classes, rows, 0)


def test_the_config_is_that_of_the_start_within_what_the_tables_have():
    config = own.config_for("universal", [table_of(84), table_of(145)])
    shipped = resolve.resolve("universal")
    assert (config.num_features, config.rows, config.warm_start) == ((24, 64, 145), 800, "universal")
    assert config.source == f"{table_of(84).source}+{table_of(145).source}"
    fields = ("log_signal", "steps", "tasks", "protector", "excess_floor", "fresh_rows", "fresh_shares")
    same = {field: getattr(shipped, field) for field in fields}
    assert {field: getattr(config, field) for field in same} == same
    assert own.config_for("universal", [table_of(1)]).num_features == (1,)
    # Networks anew, on the constants.
    anew = own.config_for("control-universal", [table_of(84)])
    assert (anew.protector, anew.warm_start, anew.name) == ("filter", "control-universal", "universal-own")
    assert anew.learning_rate == shipped.learning_rate == 2 * config.learning_rate


def test_what_trains_every_model_is_fine_tuned_for_what_the_tables_have():
    two, many, numbers = (
        own.config_for("universal", [table_of(20, kind=kind, classes=classes)])
        for kind, classes in (("binary", 2), ("multiclass", 4), ("regression", None))
    )
    assert [config.model for config in (two, many, numbers)] == ["logistic", "softmax:4", "square"]
    for config in (two, many, numbers):
        assert (config.num_features, config.num_classes, config.sources, config.models) == (
            (6, 12, 20),
            None,
            None,
            None,
        )


def test_what_was_made_for_one_kind_of_target_starts_from_that():
    many = own.config_for("probe", [table_of(20, kind="multiclass", classes=4)])
    assert (many.model, many.num_features, many.num_classes) == ("softmax:4", (20,), None)
    numbers = own.config_for("regression", [table_of(20, kind="regression", classes=None)])
    assert (numbers.model, numbers.num_features) == ("square", (8, 16, 20))
    batches = own.config_for("minibatch", [table_of(20)])
    assert (batches.num_features, batches.sampling_rates) == ((4, 16, 20), (0.05, 0.05, 0.05))
