"""Whether KV is worth moving: a short chain is recomputed sooner than it is fetched."""

__all__ = ("MoveCost",)

#: How fast the averages follow: the weight of one more sample.
WEIGHT = 0.1
#: After so many steps with prompts and no transfer the bandwidth is forgotten, a hundredth at a further step: what
#: looks too slow to be used is not measured again, and one bad sample, or a first guess, would stand for ever.
STALE, FORGET = 100, 0.01
#: Bytes a second, one way, of PCI Express 4.0 with 16 lanes, as reached in practice. A guess that is too high costs a
#: few copies until it is measured, one that is too low all of the tier.
BANDWIDTH = 25e9


class MoveCost:
    """Compares the time to fetch tokens with the time to compute them, from what was seen.

    ``token_bytes``: KV of a token. Until something was measured ``bandwidth`` (bytes a second, one way) and
    ``prefill_rate`` (prompt tokens a second) hold, the former again where nothing has been moved for long. ``latency``:
    seconds that a fetch takes beyond its bytes, the steps of the engine that it needs to be asked for and answered.
    """

    def __init__(
        self, token_bytes: int, *, bandwidth: float = BANDWIDTH, prefill_rate: float = 5e3, latency: float = 0.02
    ) -> None:
        self._token_bytes = max(1, token_bytes)
        self.bandwidth = self._guess = bandwidth
        self.prefill_rate = prefill_rate
        self.latency = latency
        self._since_fetched = 0

    def fetched(self, size: int, seconds: float) -> None:
        """A transfer of ``size`` bytes took ``seconds``, its waiting for others not counted."""
        if size > 0 and seconds > 0:
            self.bandwidth += WEIGHT * (size / seconds - self.bandwidth)
            self._since_fetched = 0

    def computed(self, tokens: int, seconds: float) -> None:
        """A step with ``tokens`` of prompts in it took ``seconds``."""
        if tokens > 0 and seconds > 0:
            self.prefill_rate += WEIGHT * (tokens / seconds - self.prefill_rate)
            self._since_fetched += 1
            if self._since_fetched > STALE:
                self.bandwidth += FORGET * (self._guess - self.bandwidth)

    def least_tokens(self) -> int:
        """Chains of at least so many tokens are fetched sooner than they are computed; a huge number if none are.

        From latency + n × bytes ÷ bandwidth < n ÷ rate.
        """
        gain = 1 / self.prefill_rate - self._token_bytes / self.bandwidth
        return max(1, int(self.latency / gain) + 1) if gain > 0 else 1 << 53
