"""What a step of the engine costs, and when prefilling ahead is worth its share of one.

An engine that decodes for many at once pays for any prefill in a step: the step leaves the captured graphs and takes
``launch_s`` longer, for everybody in it. The tokens themselves cost the same now or later. So what a prefetch costs
the others is the launch times those who decode, and what it saves its own run is its tokens' time. From this follows
what to do under load: coalesce, since many tokens share one launch; wait, while somebody else waits for a first token;
and back off as the batch fills.

Whoever asks while a prefetch runs waits for the rest of its step. So a step that prefetches share is kept short beside
the time between two who ask: it is as long as coalescing would have it while they are few, and no more than it would
take without prefetches while they are many.
"""

from attrs import frozen

__all__ = ("GUESS", "LEAST_SHARE", "RANGE", "Load", "StepTimes", "most_at_once", "next_prefill", "pays")

# A prefetch must save its run so many times what it costs the others: costs are estimates, and guesses go wrong.
MARGIN = 1.5
# In "auto" mode what is saved must be this share of the wait at least, or a request is not worth sending.
LEAST_SHARE = 0.04
# Prefetches take at most so much of the mean time between two generations that are asked for. Swept over 0.05, 0.2,
# 0.3, 0.5 and 1: the p95 of others' TTFT beside short tools (30 agents on the simulated H200, 18 draws) is 0.98, 0.89,
# 0.94, 0.92 and 1.04 times that without prefetches, and 0.95, 0.91, 0.95, 0.96 and 1.01 times on an engine that manages
# its KV; without a share it is 1.06 and 1.08. TTFT after results of 4,000 tokens that stream is 0.55 of that without
# prefetches at 0.05, and 0.26 from 0.2 on.
GAP_SHARE = 0.3


@frozen(kw_only=True)
class StepTimes:
    """Seconds: ``base_s`` of every step, ``decode_seq_s`` per sequence that decodes, ``launch_s`` more in a step with
    any prefill in it, ``token_s`` per token prefilled.
    """

    base_s: float
    decode_seq_s: float
    launch_s: float
    token_s: float

    def step_s(self, decoding: float, tokens: int) -> float:
        """Duration of one step."""
        launch = self.launch_s if tokens else 0.0
        return self.base_s + decoding * self.decode_seq_s + launch + tokens * self.token_s


#: Before anything was measured: between a fast GPU and a few cores, so that a lone run prefills ahead at once.
GUESS = StepTimes(base_s=0.005, decode_seq_s=0.0002, launch_s=0.004, token_s=0.0001)
#: By how much that may well be off.
RANGE = StepTimes(base_s=0.05, decode_seq_s=0.005, launch_s=0.02, token_s=0.003)


@frozen(kw_only=True)
class Load:
    """What is in the engine as far as its clients know: generations ``asked`` for that have no first token yet, and
    generations that are ``decoding``.
    """

    asked: int = 0
    decoding: int = 0


def next_prefill(load: Load, times: StepTimes, missing: int, *, block: int, step: int, offered: int = 0) -> int:
    """How many of a chain's ``missing`` tokens to have prefilled now; 0: wait for more of them, or for less load.

    ``block`` and ``step`` are the engine's block and the most that a request may ask for, in tokens; ``offered`` is
    what other chains miss that would go into the same step.
    """
    whole = missing // block * block
    chunk = min(whole, max(block, step // block * block))
    if chunk == 0 or load.asked:
        return 0
    launches = -(-(whole + offered) // max(step, block))
    saved, cost = (whole + offered) * times.token_s, load.decoding * times.launch_s * launches
    return chunk if saved >= MARGIN * cost else 0


def most_at_once(load: Load, times: StepTimes, gap: float, *, most: int) -> int:
    """How many tokens of prefetches, of all chains together, may be in the engine at once; at most ``most``.

    ``gap`` is the mean time between two generations that are asked for, in seconds.
    """
    seconds = max(times.step_s(load.decoding, 0), GAP_SHARE * gap)
    return int(seconds / times.token_s) if seconds < most * times.token_s else most


def pays(load: Load, times: StepTimes, missing: int) -> bool:
    """Whether ``missing`` tokens are enough of a resume's wait to prefill them at all, in ``"auto"`` mode."""
    return missing * times.token_s >= LEAST_SHARE * times.step_s(load.decoding + 1, missing)
