"""How many prefetches of each run are in the engine at once."""

from collections import defaultdict

__all__ = ("PrefetchLimit",)


class PrefetchLimit:
    """Owns the count of live prefetches per run and refuses those beyond ``limit``."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._live: defaultdict[str, set[str]] = defaultdict(set)

    def __len__(self) -> int:
        return sum(len(requests) for requests in self._live.values())

    def of_run(self, run: str) -> int:
        """Prefetches of the run that are in the engine."""
        return len(self._live.get(run, ()))

    def start(self, run: str, request: str) -> str | None:
        """Count a prefetch in; None, or the reason why it must not start."""
        if self.of_run(run) >= self.limit:
            return f"branch_prefetch_limit: {self.limit} prefetches of the run are in the engine"
        self._live[run].add(request)
        return None

    def end(self, run: str, request: str) -> None:
        """Count a prefetch out, however it ended; one that was never counted in changes nothing."""
        if run in self._live:
            self._live[run].discard(request)
            if not self._live[run]:
                del self._live[run]
