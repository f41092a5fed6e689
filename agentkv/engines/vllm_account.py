"""What the requests sent to vLLM asked for and cost, counted here and by vLLM itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ("Entry", "VLLMAccount")


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
        """Count one request from the sending to its end."""
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
        ``waiting`` is vLLM's own gauge as of its last step. ``engine`` has vLLM's count of prompt tokens by
        where their KV came from (also without requests never answered), empty with ``disable_log_stats=True``.
        """
        answered = [(entry.prompt, entry.cached) for entry in self._live.values() if entry.cached is not None]
        prompt = self._prompt + sum(of for of, _ in answered)
        cached = self._cached + sum(cached for _, cached in answered)
        waiting, by_source = _vllm_metrics()
        waiting = min(waiting, len(self._live) - len(answered))
        return {
            "running": len(self._live) - waiting,
            "waiting": waiting,
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "computed_tokens": prompt - cached,
            "unanswered": {"requests": self._aborted, "prompt_tokens": self._aborted_prompt},
            "engine": by_source,
        }


def _vllm_metrics() -> tuple[int, dict[str, int]]:
    """Waiting requests of vLLM, and prompt tokens by source, from its metrics in this process."""
    from vllm.v1.metrics.reader import get_metrics_snapshot

    waiting, by_source = 0, {}
    for metric in get_metrics_snapshot():
        if metric.name == "vllm:num_requests_waiting":
            waiting += int(metric.value)
        elif metric.name == "vllm:prompt_tokens_by_source":
            by_source[metric.labels["source"]] = int(metric.value)
    return waiting, by_source
