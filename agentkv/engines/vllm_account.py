"""What the requests sent to vLLM asked for and cost, counted here and by vLLM itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentkv.errors import EngineError

__all__ = ("Entry", "VLLMAccount")

WAITING, PREEMPTIONS, POOL_USED = "vllm:num_requests_waiting", "vllm:num_preemptions", "vllm:kv_cache_usage_perc"


class Entry:
    """One request while it is in the engine. ``cached`` is None until the engine has answered."""

    def __init__(self, prompt: int) -> None:
        self.prompt = prompt
        self.cached: int | None = None

    def answered(self, cached: int) -> None:
        """Note that ``cached`` of the prompt's tokens were there already."""
        self.cached = cached


class VLLMAccount:
    """Sums over one engine's requests, in tokens."""

    def __init__(self) -> None:
        self._live: dict[str, Entry] = {}
        self._prompt = 0
        self._cached = 0
        self._aborted = 0
        self._aborted_prompt = 0

    @contextmanager
    def request(self, request_id: str, prompt: int) -> Iterator[Entry]:
        """Count one request from the sending to its end. Raises ``EngineError`` for an id that is in use."""
        if request_id in self._live:
            raise EngineError(f"request id {request_id!r} is in use; ids are unique per engine")
        entry = self._live[request_id] = Entry(prompt)
        try:
            yield entry
        finally:
            del self._live[request_id]
            if entry.cached is None:
                self._aborted += 1
                self._aborted_prompt += entry.prompt
            else:
                self._prompt += entry.prompt
                self._cached += entry.cached

    def live(self) -> list[str]:
        """Ids of the requests now in the engine."""
        return list(self._live)

    def report(self) -> dict[str, Any]:
        """Counters as ``Engine.stats`` returns them.

        The sums are over requests that were answered. Of requests that ended before their first token vLLM
        never says what it computed: ``unanswered`` has their number and their prompt tokens, an upper bound.
        ``waiting`` and ``pool_used``, the share of the pool that requests hold, are vLLM's own gauges as of its
        last step, ``preemptions`` its sum since start. ``engine`` has vLLM's count of prompt tokens by
        where their KV came from (also without requests never answered), empty with ``disable_log_stats=True``.
        """
        answered = [(entry.prompt, entry.cached) for entry in self._live.values() if entry.cached is not None]
        prompt = self._prompt + sum(of for of, _ in answered)
        cached = self._cached + sum(cached for _, cached in answered)
        gauges, by_source = _vllm_metrics()
        waiting = min(int(gauges[WAITING]), len(self._live) - len(answered))
        return {
            "running": len(self._live) - waiting,
            "waiting": waiting,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "computed_tokens": prompt - cached,
            "preemptions": int(gauges[PREEMPTIONS]),
            "pool_used": gauges[POOL_USED],
            "unanswered": {"requests": self._aborted, "prompt_tokens": self._aborted_prompt},
            "engine": by_source,
        }


def _vllm_metrics() -> tuple[dict[str, float], dict[str, int]]:
    """Figures of vLLM, and its prompt tokens by source, from its metrics in this process."""
    from vllm.v1.metrics.reader import get_metrics_snapshot

    figures, by_source = dict.fromkeys((WAITING, PREEMPTIONS, POOL_USED), 0.0), {}
    for metric in get_metrics_snapshot():
        if metric.name in figures:
            figures[metric.name] += metric.value
        elif metric.name == "vllm:prompt_tokens_by_source":
            by_source[metric.labels["source"]] = int(metric.value)
    return figures, by_source
