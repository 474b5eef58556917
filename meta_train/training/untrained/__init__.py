"""Protectors before any training, by name."""

from collections.abc import Callable

import jax

from l2p.run.protector import Protector
from meta_train.training.untrained import filters, plain

BUILDERS: dict[str, Callable[[jax.Array], Protector]] = {
    "noisygd": plain.noisygd,
    "noisygd_mean": plain.noisygd_mean,
    "dp_fc": plain.dp_fc,
    "control": plain.control,
    "control_eigen": plain.control_eigen,
    "universal_batches": plain.universal_batches,
    "control_filter": filters.control_filter,
    "control_line": filters.control_line,
    "control_retreat": filters.control_retreat,
    "filter": filters.filter_with_network,
    "filter_retreat": filters.filter_retreat,
    "control_public": filters.control_public,
    "filter_public": filters.filter_public,
    "filter_lstm": filters.filter_with_lstm,
    "lstm": filters.lstm,
    "lstm_public": filters.lstm_public,
    "lstm_spender": filters.lstm_spender,
    "lstm_steps": filters.lstm_steps,
    "control_deep": plain.control_deep,
    "control_deep_plain": plain.control_deep_plain,
    "deep": plain.deep,
    "paper": plain.paper,
    "paper_norm": plain.paper_norm,
    "agd": plain.agd,
    "agd_gumbel": plain.agd_gumbel,
}
