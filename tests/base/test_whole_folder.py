"""Files of a result that are written together, however the process ends."""

import itertools
import os
from pathlib import Path

import pytest

from l2p.base import whole_folder
from l2p.base.errors import InputError
from l2p.base.whole_folder import MODEL_FILE, written_whole


class Killed(BaseException):
    """The process ends here, and cleans up nothing."""


def test_a_model_is_never_beside_a_card_of_an_earlier_writing_wherever_the_process_is_killed(tmp_path, monkeypatch):
    card, model = tmp_path / "card.json", tmp_path / MODEL_FILE
    monkeypatch.setattr(whole_folder.shutil, "rmtree", lambda *_, **__: None)
    for place in itertools.count(1):  # before every move and every wait for the disk, in turn
        card.write_text("older")  # of a writing that was killed before its model moved
        steps_left = itertools.count(place, -1)

        def killing(function, steps_left=steps_left):
            def act(*args, **kwargs):
                if next(steps_left) == 0:
                    raise Killed
                return function(*args, **kwargs)

            return act

        with monkeypatch.context() as patch:
            for kind, name in ((Path, "replace"), (os, "fsync")):
                patch.setattr(kind, name, killing(getattr(kind, name)))
            try:
                with written_whole(tmp_path) as folder:
                    (folder / "card.json").write_text("newer")
                    (folder / MODEL_FILE).write_text("newer")
                break
            except Killed:
                assert not model.exists() or card.read_text() == "newer"
                model.unlink(missing_ok=True)
    assert place > 5
    assert (card.read_text(), model.read_text()) == ("newer", "newer")


def test_a_result_is_not_written_over_an_older_one(tmp_path):
    (tmp_path / MODEL_FILE).write_text("older")
    with pytest.raises(InputError, match="is not overwritten; name another folder"), written_whole(tmp_path) as folder:
        (folder / MODEL_FILE).write_text("newer")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["older"]
