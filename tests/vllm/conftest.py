"""Conversations of made-up ids whose KV is sent to host memory and back at random, for tests of two tiers."""

import random
from collections import Counter
from itertools import count

import anyio
import pytest

from agentkv.engines.base import GenerateRequest
from agentkv.engines.vllm import VLLMEngine
from agentkv.kv import Directive

BLOCK = 32
SAID = 10
# Of an answer that is given up nobody learns which lease was taken.
BRIEFLY = 2.0
NUMBERS = count()

# Of each turn: where the answer begins, and its ids.
Said = list[tuple[int, tuple[int, ...]]]


def news(name: str, turn: int) -> list[int]:
    """What is new to a conversation's prompt in one of its turns: always the same ids."""
    dice = random.Random(f"{name} {turn}")
    length = dice.randrange(7 * BLOCK, 11 * BLOCK) if turn == 0 else dice.randrange(2 * BLOCK, 5 * BLOCK)
    return dice.choices(range(100, 40_000), k=length)


class Talker:
    """Holds conversations with an engine: plainly, or, with ``dice``, as an agent whose KV is never left in peace.

    Then each has a lease, is demoted and promoted at random while others decode, and is asked for answers that are
    given up. ``moves`` counts these.
    """

    def __init__(self, engine: VLLMEngine, dice: random.Random | None = None, *, salt: str = "talk") -> None:
        self.moves: Counter[str] = Counter()
        self._engine, self._dice, self._salt = engine, dice, salt

    async def hold(self, name: str, turns: int) -> tuple[list[int], Said]:
        """A conversation to its end: all its ids, and what the engine said in each turn."""
        ids: list[int] = []
        said: Said = []
        lease = None
        for turn in range(turns):
            ids += news(name, turn)
            if self._dice is not None and self._dice.random() < 0.3:
                with anyio.move_on_after(self._dice.uniform(0.01, 0.5)) as patience:
                    _, lease = await self._ask(ids, lease, ttl=BRIEFLY)
                self.moves["given up"] += patience.cancelled_caught
            answer, lease = await self._ask(ids, lease)
            said.append((len(ids), answer))
            ids += answer
            await self._wait(lease)
        if lease is not None:
            await self._engine.kv("release", {"tokens": [lease]})
        return ids, said

    async def _ask(self, ids: list[int], lease: str | None, ttl: float = 60.0) -> tuple[tuple[int, ...], str | None]:
        directive = None
        if self._dice is not None:
            reuse = self._dice.choice((None, 0.5, 5.0))
            directive = Directive(run="talk", ttl=ttl, lease=lease, resume=lease is not None, expected_reuse=reuse)
        request = GenerateRequest(
            request_id=f"talk/{next(NUMBERS)}",
            token_ids=list(ids),
            max_tokens=SAID,
            directive=directive,
            cache_salt=self._salt,
        )
        deltas = [delta async for delta in self._engine.generate(request)]
        grant = deltas[-1].grant
        return tuple(i for delta in deltas for i in delta.token_ids), None if grant is None else grant.token

    async def _wait(self, lease: str | None) -> None:
        for _ in range(self._dice.randrange(1, 5) if self._dice is not None and lease is not None else 0):
            operation = self._dice.choice(("demote", "demote", "promote", "nothing"))
            if operation != "nothing":
                answer = await self._engine.kv(operation, {"tokens": [lease]})
                self.moves[operation] += answer["reasons"] == [None]
            await anyio.sleep(self._dice.uniform(0.0, 0.2))


@pytest.fixture(scope="session")
def talker() -> type[Talker]:
    return Talker
