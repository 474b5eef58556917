"""Meta-training: learning protectors on public tasks, by differentiating the same run that is deployed.

`meta_train.fine_tune` trains on public tables of one's own.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    # Imported when asked for: whoever draws tasks has no need for all that trains on them.
    if name == "fine_tune":
        from meta_train.fine_tuning import fine_tune

        return fine_tune
    raise AttributeError(f"meta_train has no {name!r}")
