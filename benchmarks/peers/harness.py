"""Arguments, scores on the test part and JSON lines of the programs in this folder; no user writes these."""

import argparse
import json
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score


def main(train: Callable[..., np.ndarray]) -> None:
    """Run `train(private, public, test, epsilon, seed, **settings)`, which takes paths and returns the probability of
    an income above 50K for each row of the test part, once for each of the settings."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs=3, metavar=("PRIVATE", "PUBLIC", "TEST"))
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--settings", type=json.loads, default=[{}], help="JSON: a list of keyword arguments")
    args = parser.parse_args()
    # Peers warn of sampling without a secure generator, which an experiment does not need, and of deprecations.
    warnings.simplefilter("ignore")
    labels = pd.read_csv(args.tables[2], skipinitialspace=True)["income"].str.startswith(">50K")
    for settings in args.settings:
        probabilities = train(*args.tables, args.epsilon, args.seed, **settings)
        scores = {
            "majority": max(labels.mean(), 1 - labels.mean()),
            "accuracy": accuracy_score(labels, probabilities > 0.5),
            "auc": roc_auc_score(labels, probabilities),
            "log_loss": log_loss(labels, np.asarray(probabilities, np.float64)),
        }
        print(json.dumps({"settings": settings, **scores}), flush=True)
