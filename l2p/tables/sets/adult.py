"""Adult: the US census of 1994 as binary indicators."""

import numpy as np

from l2p.tables.public.download import Source
from l2p.tables.public.public_set import PublicSet, numbered

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"


def _parse(train: bytes, test: bytes) -> tuple[np.ndarray, np.ndarray]:
    # LIBSVM: a label of -1 or +1, then index:1 for every indicator that is set, counted from 1.
    lines = (train + test).replace(b":1", b"").splitlines()
    x, y = np.zeros((len(lines), 123), np.float32), np.empty(len(lines))
    for i, line in enumerate(lines):
        label, *indices = map(int, line.split())
        x[i, np.array(indices) - 1], y[i] = 1, label == 1
    return x, y


SET = PublicSet(
    name="adult",
    source="UCI Adult (Becker & Kohavi 1996, CC BY 4.0), training and test part together, as prepared by LIBSVM (a9a).",
    files=(
        Source("a9a", (_LIBSVM + "a9a",), "7ba53cccb27e2e525f0fb173e1f446d49856e3fb007eb43be4ec6d0f5b3335ca"),
        Source("a9a.t", (_LIBSVM + "a9a.t",), "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    ),
    parse=_parse,
    bounds=numbered("indicator", 123),
    target="yearly income",
    classes=("up to 50,000 dollars", "above"),
)
