"""Memory mappings, of which Linux gives a process only so many and every compiled program takes thousands."""

from pathlib import Path

#: Share of the limit from which nothing more is compiled: a program of a training takes about 2,500 of 65,530.
MOST = 0.9
MAPPINGS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


def shortage() -> str | None:
    """Reason why the next program might not fit, in which case XLA would abort; None if it does."""
    if not (MAPPINGS.exists() and LIMIT.exists()):  # other systems have no such limit
        return None
    with MAPPINGS.open("rb") as lines:
        used = sum(1 for _ in lines)
    limit = int(LIMIT.read_text(encoding="ascii"))
    if used <= MOST * limit:
        return None
    return (
        f"compiled programs take {used:,} of the {limit:,} memory mappings that Linux allows a process, and with more "
        "XLA would end it without a word; allow more: sudo sysctl -w vm.max_map_count=1048576."
    )
