"""How much host memory a process can still have, on a machine or inside a container's limit."""

from pathlib import Path

__all__ = ("free_host_bytes",)

#: Where a container's limit, use and account of it stand: control groups version 2, then version 1.
PLACES = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
FILES = ("active_file", "inactive_file", "total_active_file", "total_inactive_file")


def free_host_bytes(available: int, root: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that can be allocated: ``available`` on the machine, less where the control group's limit is nearer.

    A group's use counts the files that the kernel has cached for it, which it gives up when memory is asked for; so
    they count as free, unlike in vLLM's own measure, which called a machine full that had only read files.
    """
    for limit_file, used_file, stat_file in PLACES:
        limit, used = _number(root / limit_file), _number(root / used_file)
        if limit is not None and used is not None:
            return max(0, min(available, limit - used + _cached(root / stat_file)))
    return available


def _number(path: Path) -> int | None:
    """The number in a file; None if it is not there or says ``max``."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _cached(path: Path) -> int:
    """Bytes of cached files that the account in ``path`` names; version 1's totals hold the groups below as well."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return 0
    found = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[0] in FILES}
    totals = [size for name, size in found.items() if name.startswith("total_")]
    return sum(totals) if totals else sum(found.values())
