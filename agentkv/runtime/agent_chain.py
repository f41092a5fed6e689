"""A chain worked by hand: append, generate, fork, prefill, release."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
from attrs import evolve, frozen

from agentkv.bounds import is_whole
from agentkv.chain import Message
from agentkv.errors import EngineError, ModelOutputError, PromptTooLong, SetupError
from agentkv.graph import check_label
from agentkv.graph.path import BranchId, Path
from agentkv.report import Step
from agentkv.runtime.appended import check_messages, check_results
from agentkv.runtime.asking import ask
from agentkv.runtime.events import RunFailed, TextDelta
from agentkv.runtime.family import Family
from agentkv.runtime.follower import Follower
from agentkv.runtime.generation import appended
from agentkv.runtime.generator import Generator
from agentkv.runtime.program import Program
from agentkv.runtime.rendering import catch_up
from agentkv.runtime.services import Services
from agentkv.runtime.session import Session, begin_session
from agentkv.runtime.spent import NOTHING
from agentkv.runtime.state import End, Generate, State, Tip
from agentkv.runtime.tenure import Tenure

__all__ = ("AgentChain", "Generated", "open_chain")

NODE = "plan"


@frozen(kw_only=True)
class Generated:
    """One generation: the message that it is, with calls if it made any; ``step`` accounts for its prompt.

    ``complete`` is False if it was cut off, at its ``max_tokens`` or at the end of the model's context.
    """

    message: Message
    complete: bool
    step: Step

    @property
    def text(self) -> str:
        return self.message.content


class AgentChain:
    """One agent's conversation, as a chain; made by ``Runtime.chain`` and by ``fork``. Nothing of it is journalled.

    What was generated stands in it as the ids that the engine returned. One call at a time; forks go on by themselves.
    A chain holds a lease on its KV from its first generation on, until it is released.
    """

    def __init__(
        self,
        services: Services,
        session: Session,
        program: Program,
        tenure: Tenure,
        state: State,
        family: Family,
        branch: Path = (),
    ) -> None:
        self._services, self._session, self._program, self._tenure = services, session, program, tenure
        self._state, self._family, self._branch = state, family, branch
        self._agent = program.nodes[NODE].agent
        self._generator = Generator(session, program, branch, tenure)
        self._follower = Follower.of(session, tenure, branch)
        self._forks = Counter[str]()
        self._released = self._generating = False
        self._underway: dict[anyio.CancelScope, anyio.Event] = {}
        self._trunk = len(self.ids) if branch else 0
        family.chains.append(self)
        services.live.add(self)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return self._state.messages

    @property
    def ids(self) -> list[int]:
        """The tokens of the chain: those of what was generated, and of all that came before."""
        held = self._state.chains.get(self._agent.agent.name)
        return list(self._agent.anchor) if held is None else held.chain.ids()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The account of every generation of this chain, the one that it was forked from, and their forks."""
        return tuple(self._session.ledger.steps)

    def append(self, *messages: str | Message) -> None:
        """Add to the conversation; a text is a user's message.

        Raises ``SetupError`` for what is neither, for the result of a call that nobody made or that has one, and
        while the chain generates, since what it says then comes behind what it was asked; once it was released, too.
        """
        self._require_held()
        self._require_quiet()
        check_messages(messages)
        new = tuple(Message(role="user", content=each) if isinstance(each, str) else each for each in messages)
        check_results(self._state.messages, new)
        self._state = evolve(self._state, messages=(*self._state.messages, *new))

    def fork(self, label: str = "") -> "AgentChain":
        """A chain that goes on from here by itself, also while this one generates. Copies nothing.

        ``label`` names it in reports, a number if it is left out; forks of one label are numbered. Raises
        ``SetupError`` for one that is no short line, and once this chain was released.
        """
        self._require_held()
        if label != "":
            check_label("fork()", label)
        name = label or str(self._forks.total() + 1)
        self._forks[name] += 1
        branch = (*self._branch, BranchId("fork", self._forks[name], name))
        tenure = self._tenure.inner()
        return AgentChain(self._services, self._session, self._program, tenure, self._state, self._family, branch)

    async def prefill(self) -> int:
        """Have the engine compute now what the next prompt is certain to begin with; the tokens that it computed.

        Whole blocks only, at most ``KVConfig.prefetch_step`` tokens a request.
        """
        before = self._session.ledger.totals().prefetched
        chain = catch_up(self._program, self._agent, self._state).chain
        with self._until_released():
            await self._enter(len(chain))
            await self._follower.prefill(Tip(agent=self._agent.agent.name, chain=chain))
        return self._session.ledger.totals().prefetched - before

    async def generate(
        self,
        *,
        calls: bool = True,
        max_tokens: int | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Generated:
        """One generation of the agent behind what was appended: an answer, or calls, which are yours to run.

        ``calls=False`` asks for an answer. Raises ``PromptTooLong``, ``EngineError``, ``ModelOutputError`` for what
        cannot be read, and ``SetupError`` for options out of their bounds, while the chain generates already, and once
        it is released. What fails, or is cancelled, leaves the chain as it was; only what cannot be read stands on
        it, as the model said it.
        """
        if max_tokens is not None and not is_whole(max_tokens, 1):
            raise SetupError(f"generate(max_tokens={max_tokens!r}) must be at least 1, or None")
        if on_text is not None and not callable(on_text):
            raise SetupError(f"generate(on_text={on_text!r}) must be a function of the text, or None")
        with self._alone(), self._until_released():
            return await self._generate(calls, max_tokens, on_text)

    async def _generate(self, calls: bool, max_tokens: int | None, on_text: Callable[[str], None] | None) -> Generated:
        program = self._program if calls else _answering(self._program)
        state, command = self._ask(program)
        if max_tokens is not None:
            command = evolve(command, max_tokens=min(max_tokens, command.max_tokens))
        await self._enter(len(command.chain) + command.max_tokens)
        async with self._session.gate.enter(self._generator.keys(command)):
            asked = self._generator.ask(command, adopted=False)
            event = await self._generator.generate(command, asked, partial(_tell, on_text))
        # Only now is it part of the chain: forks that were made meanwhile, and whoever asks again, go on from before.
        state, turn = appended(program, evolve(state, visits={NODE: command.visit}), program.nodes[NODE], event)
        self._state = evolve(state, numbered=state.numbered + len(turn.calls))
        if turn.problem is not None:
            raise ModelOutputError(f"agent {self._agent.agent.name!r}: {turn.problem}")
        return Generated(
            message=self._state.messages[-1], complete=event.finish == "stop", step=self._session.ledger.steps[-1]
        )

    async def release(self) -> None:
        """Give back what the chain and the forks of it hold in the engine; what they have under way is cancelled."""
        family = [each for each in self._family.chains if each._branch[: len(self._branch)] == self._branch]
        with anyio.CancelScope(shield=True):
            for chain in reversed(family):
                chain._released = True
                self._family.chains.remove(chain)
                self._services.live.discard(chain)
                await chain._end_work()
                # What cannot be given back expires, or is gone with its engine.
                with suppress(EngineError):
                    await self._family.leave(chain._tenure, chain._branch)

    async def stop(self) -> None:
        """As ``release``: what a runtime that is closed does to what is still alive."""
        await self.release()

    def _ask(self, program: Program) -> tuple[State, Generate]:
        """What the chain asks for next, and its state then."""
        # A chain is no run: only the model's context bounds it.
        fresh = evolve(self._state, spent=NOTHING)
        state, (command, *_) = ask(program, fresh, NODE, self._session.engine.clock.now())
        if isinstance(command, End) and isinstance(command.event, RunFailed):
            raise PromptTooLong(command.event.message)
        assert isinstance(command, Generate)
        return state, command

    async def _enter(self, tokens: int) -> None:
        """Have a place in the engine for a chain of ``tokens``."""
        self._require_held()
        await self._family.enter(self._tenure, self._branch, tokens - self._trunk)

    @contextmanager
    def _until_released(self) -> Iterator[None]:
        """Do what the body does, until the chain is released: what it has in the engine is given back then."""
        with anyio.CancelScope() as scope:
            self._underway[scope] = anyio.Event()
            try:
                yield
            finally:
                self._underway.pop(scope).set()
        if scope.cancelled_caught:
            self._require_held()

    async def _end_work(self) -> None:
        for scope, ended in tuple(self._underway.items()):
            scope.cancel()
            await ended.wait()

    def _require_held(self) -> None:
        if self._released:
            raise SetupError(f"the chain of agent {self._agent.agent.name!r} was released; make another")

    def _require_quiet(self) -> None:
        if self._generating:
            raise SetupError(f"the chain of agent {self._agent.agent.name!r} is generating already; fork() it")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._require_quiet()
        self._generating = True
        try:
            yield
        finally:
            self._generating = False


def _answering(program: Program) -> Program:
    node = program.nodes[NODE]
    shape = evolve(node.shape, tools=(), choice="none")
    return evolve(program, nodes={**program.nodes, NODE: evolve(node, tools={}, shape=shape)})


def _tell(on_text: Callable[[str], None] | None, event: TextDelta) -> None:
    if on_text is not None:
        on_text(event.text)


def open_chain(services: Services, program: Program, run_id: str, salt: str | None) -> AgentChain:
    """A chain of the program's agent, which nobody has said anything on yet. ``run_id`` is what records name it by."""
    session = begin_session(services, run_id, salt, publish=_ignore, report=_ignore, arrived=_ignore, ran=_ignore)
    tenure = Tenure(services.engine, run_id, salt, _ignore)
    family = Family(services, session, program.nodes[NODE].agent, tenure)
    return AgentChain(services, session, program, tenure, State(run_id=run_id), family)


def _ignore(*_: Any) -> None:
    """Nobody watches a chain that is worked by hand."""
