"""Files of a folder that are written together, however the process ends."""

import itertools
import os
from pathlib import Path

from l2p.base import whole_folder
from l2p.base.whole_folder import written_whole


class Killed(BaseException):
    """The process ends here, and cleans up nothing."""


def test_a_folder_that_is_written_again_never_has_the_last_file_beside_another_of_an_earlier_writing(
    tmp_path, monkeypatch
):
    card, model = tmp_path / "card", tmp_path / "model"
    for path in (card, model):
        path.write_text("older")
    monkeypatch.setattr(whole_folder.shutil, "rmtree", lambda *_, **__: None)
    for place in itertools.count(1):  # before every move and every wait for the disk, in turn
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
                with written_whole(tmp_path, last="model") as folder:
                    (folder / "card").write_text("newer")
                    (folder / "model").write_text("newer")
                break
            except Killed:
                pass
        assert not model.exists() or model.read_text() == card.read_text()
    assert place > 5
    assert (card.read_text(), model.read_text()) == ("newer", "newer")
