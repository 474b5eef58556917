"""What tyro says of a command line that it cannot read, as one sentence."""

import difflib
import re
from collections.abc import Collection, Sequence

#: Words of tyro's on a value, and what is said instead; the first group is the option, the last what it was given.
_NUMBERS = {
    r"Error parsing (\S+): could not convert string to float: (.*)": "a number",
    r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)": "a whole number",
    r"Error parsing (\S+): no type matching .*INT.* could be instantiated from \[(.*)\]": "a whole number",
    r"Error parsing (\S+): no type matching .*FLOAT.* could be instantiated from \[(.*)\]": "numbers",
}
_CHOICE = re.compile(r"invalid choice (.*) for argument '(.*)'. Expected one of \((.*?),?\)")
_MISSING = re.compile(r"Missing from (l2p[ \w-]*): (.*)")
#: How to come by what an option takes.
_HINTS = {"--schema": "write one with l2p schema DATA --target COLUMN --out schema.json"}


def sentence(box: str, args: Sequence[str], commands: Collection[str]) -> str:
    """One sentence from the framed box that tyro prints: what was wrong, what would do, and where there is help.

    Args:
      box: as printed, its frame of box characters or of ASCII.
      args: the command line.
      commands: names of all commands.
    """
    title, *paragraphs = _paragraphs(box)
    first = paragraphs[0] if paragraphs else title
    command = next(iter(args), "")
    where = f"see l2p {command} --help." if command in commands else "see l2p --help."
    if command not in commands and command and not command.startswith("-"):
        near = difflib.get_close_matches(command, commands, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"there is no command {command!r}{meant}; {where}"
    if said := _of_value(first):
        return f"{said}; {where}"
    unknown = [other for other in paragraphs[1:] if other.startswith("Unrecognized options")]
    if missing := _MISSING.search(first):
        hints = [hint for option, hint in _HINTS.items() if re.search(rf"{option}\b", missing[2])]
        return "; ".join([f"{missing[1]} also needs {missing[2]}", *hints, *unknown, where])
    return "; ".join([first if first.startswith(title) else f"{title}: {first}", *unknown, where])


def _of_value(said: str) -> str | None:
    """What is wrong with an option's value, if that is what tyro says."""
    for pattern, wanted in _NUMBERS.items():
        if found := re.search(pattern, said):
            return f"{found[1]} takes {wanted}, not {found[2].rstrip('.')}"
    if found := _CHOICE.search(said):
        choices = sorted(choice for choice in re.findall(r"'(.*?)'", found[3]) if choice != "None")
        return f"{found[2]} takes {', '.join(choices[:-1])} or {choices[-1]}, not {found[1]}"
    return None


def _paragraphs(box: str) -> list[str]:
    """The box's title and its paragraphs, without help texts of options."""
    title, *body = (line[1:-1] for line in box.splitlines() if line)
    paragraphs = [[]]
    for line in body:
        if not line.strip("─- "):
            paragraphs.append([])
        elif not line.startswith(" " * 8):
            paragraphs[-1].append(line.strip())
    return [title.strip("─- "), *(" ".join(paragraph) for paragraph in paragraphs if paragraph)]
