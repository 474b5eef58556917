"""What whoever releases a model states on its card in words of their own; nothing in l2p checks it."""

from collections.abc import Mapping

from l2p.base.errors import InputError

#: Titles on a card by the names of statements, and what it says where there is none.
TITLES = {"justification": "Justification", "contact": "Contact", "audit": "Audit"}
_UNSTATED = {"justification": "not stated", "contact": "not stated", "audit": "none"}
#: Title of all of them, and what goes for each.
STATED, UNCHECKED = "Stated by whoever released it", "in their own words, checked by nobody"
#: The most characters of one statement: a card is read by people.
LONGEST = 2000


def checked(statements: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """The statements that are made, in one line each; None if there are none.

    Raises:
      InputError: a name is none of `TITLES`, or a text is empty, too long, or steers a terminal.

    >>> checked({"contact": " the data office,\\n room 4 ", "audit": None})
    {'contact': 'the data office, room 4'}
    """
    stated = {name: text for name, text in (statements or {}).items() if text is not None}
    for name, text in stated.items():
        if name not in TITLES:
            raise InputError(
                f"a card has no place for a statement called {str(name)[:40]!r}; state {', '.join(TITLES)}, or leave "
                "it out."
            )
        if not isinstance(text, str) or not (line := " ".join(text.split())):
            raise InputError(f"the {name} on a card is empty or no text; write a sentence, or leave it out.")
        if len(line) > LONGEST or not line.isprintable():
            raise InputError(
                f"the {name} on a card is longer than {LONGEST:,} characters or holds control characters, and people "
                "are to read it; write a few sentences."
            )
        stated[name] = line
    return stated or None


def on_card(statements: Mapping[str, str] | None) -> dict[str, str]:
    """Every statement by its title; of one that was not made, that it was not.

    >>> on_card(None)["Audit"]
    'none'
    """
    return {title: (statements or {}).get(name, _UNSTATED[name]) for name, title in TITLES.items()}
