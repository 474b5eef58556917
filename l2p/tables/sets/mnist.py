"""MNIST: images of handwritten digits, 28 x 28 pixels."""

import numpy as np

from l2p.tables.public.digit_variants import DIGIT_VARIANTS
from l2p.tables.public.download import Source
from l2p.tables.public.public_set import PublicSet, numbered

_MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")


def _parse(images: bytes, labels: bytes) -> tuple[np.ndarray, np.ndarray]:
    # IDX: a header of 16 bytes before the pixels, of 8 before the labels.
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28 * 28), np.frombuffer(labels, np.uint8, offset=8)


SET = PublicSet(
    name="mnist",
    source="The test part of MNIST (LeCun, Cortes & Burges 1998), made from NIST's special databases 1 and 3; usually "
    "cited as CC BY-SA 3.0.",
    files=(
        Source(
            "t10k-images-idx3-ubyte",
            tuple(mirror + "t10k-images-idx3-ubyte.gz" for mirror in _MIRRORS),
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        Source(
            "t10k-labels-idx1-ubyte",
            tuple(mirror + "t10k-labels-idx1-ubyte.gz" for mirror in _MIRRORS),
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    parse=_parse,
    bounds=numbered("pixel", 28 * 28, (0, 255)),
    target="digit",
    classes=tuple("0123456789"),
    variants=DIGIT_VARIANTS,
)
