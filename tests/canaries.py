"""Canary values, tables that contain them, and a search for canaries in output.

The canaries are a word, a number and, under add_remove, the number of rows.
"""

import contextlib
import io
import logging
import re
import traceback
import warnings

import numpy as np

from l2p.tables.schema import Number, Schema, Target

WORD, NUMBER, COUNT, N = "canary-quokka-7f3a", 73190.625, 1013, 1000
PATTERNS = {
    "the word": re.compile("quokka", re.IGNORECASE),
    # Not inside longer numbers and digests, of which a run writes thousands of random digits.
    "the number": re.compile(r"(?<![\w.])73,?190"),
    "the count": re.compile(r"(?<![\w.])(1[,_ ]?013|811)(?![\w.])"),  # or four fifths: training rows of `compare`
}
HEADER = "age,dose,readmit"
#: What another library's message might say.
SAID = f"could not allocate f32[{COUNT},3] nor read '{WORD}' or {NUMBER}"
SCHEMA = Schema({"age": Number(0, 120), "dose": Number(-1, 1)}, Target("readmit", classes=(0, 1)))


def leaks(text):
    """The canaries in a text."""
    return [name for name, pattern in PATTERNS.items() if pattern.search(text)]


def observed(function, folder=None):
    """What `function` returns or raises, and all that it prints, logs, warns and writes to a folder."""
    out, logged, result = io.StringIO(), io.StringIO(), None
    handler = logging.StreamHandler(logged)
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(out):
            warnings.simplefilter("always")
            with contextlib.redirect_stderr(out):
                result = function()
    except Exception as error:
        result = error
        out.write(traceback.format_exc())
    finally:
        logging.getLogger().removeHandler(handler)
    texts = [out.getvalue(), logged.getvalue(), *(str(warning.message) for warning in warned)]
    if folder is not None and folder.exists():
        texts += [
            f"{path}\n" + path.read_bytes().decode("latin-1") for path in sorted(folder.rglob("*")) if path.is_file()
        ]
    return result, "\n".join(texts)


def lines_of(first=f"{NUMBER},0.5,1"):
    rng = np.random.default_rng(0)
    age, dose = rng.uniform(0, 120, COUNT - 1), rng.uniform(-1, 1, COUNT - 1)
    return [first, *(f"{a:.4f},{d:.4f},{int(a / 60 + d > 1)}" for a, d in zip(age, dose, strict=True))]


def csv(first=f"{NUMBER},0.5,1", header=HEADER):
    return "\n".join([header, *lines_of(first)]) + "\n"


def apart(text):
    """The table with other ages in all rows but the first, to score on."""
    head, first, *others = text.splitlines()
    return "\n".join([head, first, *(line.replace(".", ".1", 1) for line in others)]) + "\n"


GOOD = csv()
BAD = {
    "no header, words": "\n".join([f"{WORD},yes,no", *lines_of()]),
    "no header, words alone": f"{WORD},yes,no\n" * COUNT,
    "no header, numbers": "\n".join(lines_of(f"{NUMBER},{NUMBER},1")),
    "no header, a word among numbers": "\n".join([f"{WORD},{NUMBER},1", *lines_of()]),
    "no header, one declared name": "\n".join([f"age,{WORD},klass", *lines_of()]),
    "no header, repeated": f"{WORD},{WORD},1\n" * COUNT,
    "no header, semicolons": "\n".join(lines_of(f"{WORD},{NUMBER},1")).replace(",", ";"),
    "no header, one line": f"{WORD},61,readmit|" * COUNT,
    "semicolons": csv(f"{WORD},0.5,1").replace(",", ";"),
    "tabs": csv(f"{WORD},0.5,1").replace(",", "\t"),
    "words in a feature": csv(f"{WORD},0.5,1"),
    "words in the target": csv(f"{NUMBER},0.5,{WORD}"),
    "words in a column that is not declared": csv(f"{NUMBER},0.5,1,{WORD}", HEADER + ",name"),
    "labels": csv(f"61,0.5,{NUMBER}"),
    "a label missing": csv(f"{NUMBER},0.5,"),
    "words for missing": csv(f"{NUMBER},n/a,1"),
    "NaN": csv(f"{NUMBER},nan,1"),
    "infinite": csv(f"{NUMBER},-inf,1"),
    "huge": csv(f"{NUMBER},{'9' * 400},1"),
    "dates": csv(f"{NUMBER},2024-01-31,1"),
    "nothing": "",
    "a header alone": HEADER + "\n",
    "white space": " \n\n \n",
    "a cell without an end": csv(f"{WORD * 20_000},0.5,1"),
    "no UTF-8": csv(f"{WORD}\xe9,0.5,1").encode("latin-1"),
    "UTF-16": csv(f"{WORD},0.5,1").encode("utf-16"),
    "binary": b"\x00\xff" + WORD.encode() * COUNT,
    "a zero byte": csv(f"{WORD}\0,0.5,1"),
    "twice the same column": csv(header=f"{WORD},{WORD},readmit"),
    "numbers in the header": csv(header=f"age,{NUMBER},readmit"),
    "a column without a name": csv(header=f"{WORD},,readmit"),
    "ragged": csv(f"{NUMBER},0.5"),
    "ragged the other way": csv(f"{NUMBER},0.5,1,{WORD}"),
    "an open quote": csv(f'"{NUMBER},0.5,1'),
    "an open quote in the header": csv(header=f'age,"{WORD},readmit'),
    "a column less": "\n".join([f"age,{WORD}", *(line.rsplit(",", 1)[0] for line in lines_of())]),
    "other columns": csv(header=f"{WORD},b,c"),
}
