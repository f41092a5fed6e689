"""How good guesses at tool results are on recorded conversations, in tokens; no engine is needed for that.

Each turn of calls is met as the runtime meets it: with every call a guess is made, by who is right often enough; the
tip is rendered with the guesses in the place of results up to the first call without one, and of what whole blocks it
adds, those up to the first token in which it differs from what was recorded are used.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen

from agentkv.bench.columns import aligned
from agentkv.chain import ChatFormat, Message
from agentkv.common_prefix import common_prefix
from agentkv.errors import SetupError, SpecialTokenError, TemplateError
from agentkv.follow import Memo, PredictedResult, Trust
from agentkv.tools import ToolCall, clean_text
from agentkv.trace import Trajectory, read_trajectories

__all__ = ("Guessed", "Guesser", "Hook", "judge_predictors", "predictor_lines")

SCHEMA = "agentkv.predictors/1"
# In the order of the table.
PREDICTORS = ("memo", "poll", "hook")
# Columns of the table that hold text.
NAMES = (0, 3)
MEMO_BYTES = 4_000_000
Hook = Callable[[ToolCall], str | None]


@frozen(kw_only=True)
class Guessed:
    """Guesses of one predictor at ``guesses`` results: tokens in whole blocks that they had prefilled, and used."""

    guesses: int = 0
    predicted: int = 0
    used: int = 0

    @property
    def wasted(self) -> int:
        """Tokens that were prefilled for nothing."""
        return self.predicted - self.used

    def plus(self, other: "Guessed") -> "Guessed":
        """The sum of both."""
        return Guessed(
            guesses=self.guesses + other.guesses,
            predicted=self.predicted + other.predicted,
            used=self.used + other.used,
        )


class Guesser:
    """Goes through conversations and counts: ``found`` by predictor, ``results`` and their ``tokens`` in all.

    ``chat`` is a model's format, ``block`` the size of its engine's KV blocks in tokens. Every tool is taken to be
    read-only. ``hook`` is asked first, then what calls gave before: in the same conversation, or, ``for_agent``, in any
    with the same instructions and tools.
    """

    def __init__(self, chat: ChatFormat, *, block: int, hook: Hook | None = None, for_agent: bool = False) -> None:
        self._chat, self._block, self._hook, self._for_agent = chat, block, hook, for_agent
        self._memos: dict[tuple[str, str], Memo] = {}
        self._trust = Trust()
        self.found = dict.fromkeys(PREDICTORS, Guessed())
        self.results = self.tokens = 0

    def read(self, trajectory: Trajectory) -> None:
        """Go through one conversation. Raises ``SetupError`` where template or tokenizer cannot render it."""
        memo, messages = self._memo(trajectory), trajectory.messages
        try:
            for at, message in enumerate(messages):
                if results := _results(messages, at):
                    guesses = [guess(self._hook, memo, call) for call in message.calls]
                    believed = [self._believed(*each) for each in zip(message.calls, guesses, strict=True)]
                    self._judge(trajectory, messages[: at + 1], results, believed)
                    self._learn(memo, message.calls, guesses, results)
        except (TemplateError, SpecialTokenError) as error:
            raise SetupError(f"{trajectory.place} ({trajectory.id}): {error}") from error

    def _believed(self, call: ToolCall, guessed: PredictedResult | None) -> PredictedResult | None:
        return guessed if guessed is not None and self._trust.enough(call.name, guessed.source) else None

    def _learn(
        self,
        memo: Memo,
        calls: Sequence[ToolCall],
        guesses: Sequence[PredictedResult | None],
        results: Sequence[Message],
    ) -> None:
        for call, guessed, result in zip(calls, guesses, results, strict=True):
            memo.remember(call.key, result.content)
            if guessed is not None:
                self._trust.judge(call.name, guessed, result.content)

    def _memo(self, trajectory: Trajectory) -> Memo:
        if not self._for_agent:
            return Memo(MEMO_BYTES)
        agent = (trajectory.system, repr(trajectory.tools))
        return self._memos.setdefault(agent, Memo(MEMO_BYTES))

    def _judge(
        self,
        trajectory: Trajectory,
        before: Sequence[Message],
        results: Sequence[Message],
        guesses: Sequence[PredictedResult | None],
    ) -> None:
        system, tools, chat = trajectory.system, trajectory.tools, self._chat
        self.results += len(results)
        self.tokens += sum(chat.tokenizer.count(result.content) for result in results)
        if guesses[0] is None or not chat.appends(results):
            return
        held = len(chat.render(system, tools, before, generation_prompt=False))
        real = chat.delta(system, tools, before, results)
        missing: list[Message | None] = [None] * len(results)
        reach = self._whole(held + len(chat.known(system, tools, before, missing)))
        for at, guessed in enumerate(guesses):
            if guessed is None:
                return
            missing[at] = evolve(results[at], content=guessed.text)
            ids = chat.known(system, tools, before, missing)
            further = self._whole(held + len(ids))
            right = min(further, max(reach, self._whole(held + common_prefix(ids, real))))
            self._count(guessed.source, Guessed(guesses=1, predicted=further - reach, used=right - reach))
            reach = further

    def _whole(self, tokens: int) -> int:
        return tokens // self._block * self._block

    def _count(self, source: str, guessed: Guessed) -> None:
        self.found[source] = self.found[source].plus(guessed)


def guess(hook: Hook | None, memo: Memo, call: ToolCall) -> PredictedResult | None:
    """What ``call`` may give, by ``hook`` or else by what calls gave before.

    Raises ``SetupError`` where the hook returns what is no text.
    """
    text: object = None if hook is None else hook(call)
    if not isinstance(text, str | None):
        raise SetupError(f"the hook returned a {type(text).__name__} for a call of {call.name!r}; return str or None")
    return memo.predict(call) if text is None else PredictedResult("hook", clean_text(text))


def _results(messages: Sequence[Message], at: int) -> list[Message]:
    """The results of the calls of turn ``at``, in call order; none where it made none, or not all were recorded."""
    given: dict[str, Message] = {}
    for message in messages[at + 1 :]:
        if message.role != "tool":
            break
        given[message.call_id] = message
    calls = messages[at].calls
    return [given[call.id] for call in calls] if all(call.id in given for call in calls) else []


def judge_predictors(
    files: Sequence[Path], chat: ChatFormat, *, block: int, hook: Hook | None, for_agent: bool
) -> dict[str, Any]:
    """The table over ``files`` as JSON: for each, what each predictor had prefilled, and what of that was used.

    Raises ``SetupError``.
    """
    rows = []
    for file in files:
        guesser = Guesser(chat, block=block, hook=hook, for_agent=for_agent)
        for trajectory in read_trajectories(file):
            guesser.read(trajectory)
        rows.append(_row(file.name.partition(".")[0], guesser.results, guesser.tokens, guesser.found))
    return {"schema": SCHEMA, "block": block, "memo": "agent" if for_agent else "run", "files": rows}


def _row(name: str, results: int, tokens: int, found: Mapping[str, Guessed]) -> dict[str, Any]:
    predictors = {source: {**asdict(each), "wasted": each.wasted} for source, each in found.items()}
    return {"file": name, "results": results, "tokens": tokens, "predictors": predictors}


def predictor_lines(result: Mapping[str, Any]) -> list[str]:
    """The table in text: a line for each file and predictor that guessed."""
    rows = [("file", "results", "tokens", "by", "guesses", "predicted", "used", "wasted", "right")]
    for row in result["files"]:
        for source, each in row["predictors"].items():
            if each["guesses"]:
                counts = (f"{each[name]:,}" for name in ("guesses", "predicted", "used", "wasted"))
                right = f"{each['used'] / each['predicted']:.0%}" if each["predicted"] else ""
                rows.append((row["file"], f"{row['results']:,}", f"{row['tokens']:,}", source, *counts, right))
    return [line.rstrip() for line in aligned(rows, left=NAMES)]
