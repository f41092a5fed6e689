"""The engine's steps as a client sees them: tokens that arrive together came out of one step.

From when each token of each request arrives follow the ends of the steps, who decoded in them, and, with what was
cached of each prompt, what was prefilled in them. That needs nothing from the engine, so any can be measured.
"""

from collections.abc import Sequence
from typing import Any

from attrs import define, field, frozen

__all__ = ("StepLog", "StepRow", "steps_json")

# Tokens of different requests that arrive so soon after each other came out of one step, in seconds.
TOGETHER = 0.002
# Enough for a fit of six coefficients, few enough for a small file.
ROWS_KEPT = 2000
COLUMNS = ("seconds", "decode_seqs", "context_tokens", "prefill_tokens", "prefill_context")

Key = tuple[int, int]


@frozen
class StepRow:
    """One step: how long it took and what was in it, in the words of ``StepCost``."""

    seconds: float
    decode_seqs: int
    context_tokens: int
    prefill_tokens: int
    prefill_context: int


@frozen
class _Prompt:
    sent_at: float
    tokens: int
    cached: int


@define
class _Step:
    end: float
    decoding: list[Key] = field(factory=list)
    starting: list[Key] = field(factory=list)
    prefill_tokens: int = 0
    prefill_context: int = 0
    context: int = 0
    clear: bool = True


class StepLog:
    """Takes down the tokens of a repetition as they arrive. Times are clock seconds."""

    def __init__(self) -> None:
        self._tokens: list[tuple[float, Key, int]] = []
        self._prompts: dict[Key, _Prompt] = {}

    def arrived(self, at: float, agent: int, turn: int, tokens: int) -> None:
        """``tokens`` of a turn came ``at`` that time."""
        self._tokens.append((at, (agent, turn), tokens))

    def prompt(self, agent: int, turn: int, *, sent_at: float, tokens: int, cached: int) -> None:
        """What a turn's prompt was, known at its end."""
        self._prompts[agent, turn] = _Prompt(sent_at, tokens, cached)

    def rows(self, step_tokens: int) -> list[StepRow]:
        """The steps whose work is known, in order. ``step_tokens`` is the most that one computes."""
        steps = self._steps()
        for place, step in enumerate(steps):
            for key in step.starting:
                if (prompt := self._prompts.get(key)) is None or not _spread(prompt, steps, place, step_tokens):
                    step.clear = False
        return [row for place in range(len(steps)) if (row := self._row(steps, place)) is not None]

    def _steps(self) -> list[_Step]:
        steps: list[_Step] = []
        said: dict[Key, int] = {}
        seen: set[Key] = set()
        last = 0.0
        for at, key, tokens in self._tokens:
            # A client that has many to hand out takes longer than that for all of them, and no step has two of one.
            if not steps or at - last > TOGETHER or key in seen:
                steps.append(_Step(at))
                seen.clear()
            step, last = steps[-1], at
            seen.add(key)
            if key in said:
                step.decoding.append(key)
                step.context += said[key] + (self._prompts[key].tokens if key in self._prompts else 0)
            else:
                step.starting.append(key)
            # Two tokens at once: a step's end was not seen.
            step.clear = step.clear and tokens == 1
            said[key] = said.get(key, 0) + tokens
        return steps

    def _row(self, steps: Sequence[_Step], place: int) -> StepRow | None:
        step = steps[place]
        if not step.clear or place == 0:
            return None
        start = steps[place - 1].end
        if not step.decoding:
            # Nobody was in the engine before: the step began when the first of these was sent.
            start = max(start, min(self._prompts[key].sent_at for key in step.starting))
        return StepRow(step.end - start, len(step.decoding), step.context, step.prefill_tokens, step.prefill_context)


def steps_json(rows: Sequence[StepRow]) -> dict[str, Any]:
    """At most 2,000 of the rows, evenly chosen, with the names of their columns."""
    apart = max(1, -(-len(rows) // ROWS_KEPT))
    kept = [
        [round(r.seconds, 5), r.decode_seqs, r.context_tokens, r.prefill_tokens, r.prefill_context]
        for r in rows[::apart]
    ]
    return {"columns": list(COLUMNS), "rows": kept}


def _spread(prompt: _Prompt, steps: Sequence[_Step], place: int, step_tokens: int) -> bool:
    """Put a prompt's computed tokens into the steps that end with its first token; False where they do not fit."""
    end, missing = prompt.tokens, prompt.tokens - prompt.cached
    for step in reversed(steps[: place + 1]):
        if not missing or step.end <= prompt.sent_at:
            break
        tokens = max(0, min(missing, step_tokens - len(step.decoding) - step.prefill_tokens))
        step.prefill_tokens += tokens
        step.prefill_context += tokens * (end - tokens) + tokens * tokens // 2
        end, missing = end - tokens, missing - tokens
    return not missing
