"""Options of an `apply`, as the commands' own tests have them."""

from tests.commands.conftest import options, refused

__all__ = ["options", "refused"]
