"""Untrusted files of checkpoints: formats, shapes and sizes are checked before anything is read or made."""

import json
import os
import struct

import pytest

from l2p.checkpoints import checkpoint
from tests.checkpoints.damaged_files import CARD, changed, encoded, refused, write


def raw(path, header, data=b""):
    """A file with this header, valid or not."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "C64", "I64", "BOOL"])
def test_arrays_in_a_format_of_other_numbers_are_refused(tmp_path, kind):
    size = {"BF16": 2, "F8_E4M3": 1, "C64": 8, "I64": 8, "BOOL": 1}[kind]
    card = json.dumps({**CARD, "structure": encoded("noisygd")[0]})
    header = {"__metadata__": {"card": card}, "x": {"dtype": kind, "shape": [1], "data_offsets": [0, size]}}
    assert f"holds {kind}" in refused(raw(tmp_path / "mine.safetensors", header, b"\0" * size))


@pytest.mark.parametrize("shape", [[2**62, 2**62], [10**9], [0, 10**12], [1] * 300], ids=range(4))
def test_shapes_that_a_file_cannot_hold_are_refused_before_they_are_made(tmp_path, shape):
    size = 4 if shape == [1] * 300 else 0
    card = json.dumps({**CARD, "structure": encoded("noisygd")[0]})
    header = {"__metadata__": {"card": card}, "x": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}
    refused(raw(tmp_path / "mine.safetensors", header, b"\0" * size))
    # And where the structure declares another shape than the array has.
    structure, arrays = encoded("adadp")
    bad = changed(structure, (), fields__log_clip_norm={"array": shape})
    assert "log_clip_norm" in refused(write(tmp_path / "mine.safetensors", bad, arrays))


def test_what_is_no_file_or_far_too_large_is_refused_unread(tmp_path):
    huge, pipe = tmp_path / "huge.safetensors", tmp_path / "pipe.safetensors"
    with huge.open("wb") as file:
        file.truncate(checkpoint.MAX_BYTES + 1)
    os.mkfifo(pipe)
    for path, phrase in (
        (huge, "larger than 128 MiB"),
        (pipe, "it is not a file"),
        (tmp_path / "", "it is not a file"),
    ):
        assert phrase in refused(f"{path}{os.sep if path == tmp_path else ''}")


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path):
    content = write(tmp_path / "mine.safetensors", *encoded("noisygd")).read_bytes()
    path = tmp_path / "short.safetensors"
    for end in [0, 1, 7, 8, 9, 100, *range(200, len(content), 997), len(content) - 1]:
        path.write_bytes(content[:end])
        assert "cannot be read" in refused(path)


def test_a_rate_can_be_asked_only_of_what_draws_batches(tmp_path):
    path = write(tmp_path / "mine.safetensors", *encoded("agd"), range={"sampling_rate": [0.01, 0.5]})
    assert "cannot draw Poisson sampling" in refused(f"{path}@0.1")
