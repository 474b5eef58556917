"""tyro's complaint about a command line that it cannot read, as one sentence."""

import difflib
import re
from collections.abc import Collection, Sequence

#: tyro's complaints about a value, and the kind that the option takes. First group: the option; last: its value.
_NUMBERS = {
    r"Error parsing (\S+): could not convert string to float: (.*)": "a number",
    r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)": "a whole number",
    r"Error parsing (\S+): no type matching .*INT.* could be instantiated from \[(.*)\]": "a whole number",
    r"Error parsing (\S+): no type matching .*FLOAT.* could be instantiated from \[(.*)\]": "numbers",
}
_CHOICE = re.compile(r"invalid choice (.*) for argument '(.*)'. Expected one of \((.*?),?\)")
_MISSING = re.compile(r"Missing from (l2p[ \w-]*): (.*)")
#: Advice on getting the value of an option.
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
    if fault := _of_value(first):
        return f"{fault}; {where}"
    unknown = [paragraph for paragraph in paragraphs[1:] if paragraph.startswith("Unrecognized options")]
    if missing := _MISSING.search(first):
        hints = [hint for option, hint in _HINTS.items() if re.search(rf"{option}\b", missing[2])]
        return "; ".join([f"{missing[1]} also needs {missing[2]}", *hints, *unknown, where])
    return "; ".join([first if first.startswith(title) else f"{title}: {first}", *unknown, where])


def _of_value(complaint: str) -> str | None:
    """The fault of an option's value, if tyro complains about one."""
    for pattern, wanted in _NUMBERS.items():
        if match := re.search(pattern, complaint):
            return f"{match[1]} takes {wanted}, not {match[2].rstrip('.')}"
    if match := _CHOICE.search(complaint):
        choices = sorted(choice for choice in re.findall(r"'(.*?)'", match[3]) if choice != "None")
        return f"{match[2]} takes {', '.join(choices[:-1])} or {choices[-1]}, not {match[1]}"
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
