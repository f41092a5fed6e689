"""Runs tool calls, one task each, and reports exactly one result for each."""

from collections.abc import Callable
from math import inf
from typing import Any

import anyio
from anyio.abc import TaskGroup
from attrs import evolve

from agentkv.errors import AgentKVError, NodeError, ToolError
from agentkv.follow import PredictedResult
from agentkv.graph import END, CallResult, Node
from agentkv.graph.path import Path, place
from agentkv.raised import guarded, shown
from agentkv.report import Span
from agentkv.runtime.events import CallFinished, CallStarted
from agentkv.runtime.program import Program
from agentkv.runtime.session import Session
from agentkv.runtime.state import CallTool
from agentkv.tools import Context, Outcome, Tool, clean_text, invoke

__all__ = ("Dispatcher",)


class Dispatcher:
    """The tool side of one branch. What happens is reported in order; an error ends the branch."""

    def __init__(self, session: Session, program: Program, branch: Path) -> None:
        self._session, self._program, self._branch = session, program, branch
        self._clock = session.engine.clock
        self.abandoned: list[str] = []

    def start(
        self, tasks: TaskGroup, command: CallTool, guessed: PredictedResult | None, prepare: Callable[[], None]
    ) -> None:
        """Start a call in a task of its own within ``tasks``; ``prepare`` is called in that task first.

        What was ``guessed`` of its result is judged by it.
        """
        tasks.start_soon(self._call, command, guessed, prepare, name=f"tool {command.call.name}")

    async def _call(self, command: CallTool, guessed: PredictedResult | None, prepare: Callable[[], None]) -> None:
        prepare()
        tool = self._program.nodes[command.asking].tools[command.call.name]
        now, started = self._clock.now, self._clock.now()
        self._report(
            CallStarted(node=command.node, index=command.index, call=command.call, at=started, branch=self._branch)
        )
        ended = "raised"
        try:
            outcome = self._observed(command, await self._invoke(tool, command))
            ended = outcome.status
        except AgentKVError as error:
            self._report(error)
            return
        except (KeyboardInterrupt, SystemExit):
            raise
        except anyio.get_cancelled_exc_class():
            ended = "cancelled"
            if anyio.current_effective_deadline() == -inf:
                raise
            # Else nobody would hear of it: the run did not ask for this, and would wait for the result.
            self._report(ToolError(f"tool {tool.name!r}: its task was cancelled by something other than its run"))
            return
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises ends its run, and nothing else
            failed = ToolError(f"tool {tool.name!r} raised {shown(error)}")
            failed.__cause__ = error
            self._report(failed)
            return
        finally:
            label = place(self._branch, tool.name)
            self._session.ran(Span(kind="tool", label=label, start=started, end=now(), ended=ended))
        self._finished(tool, command, outcome, guessed, started)

    def _finished(
        self,
        tool: Tool[Any, ..., Any],
        command: CallTool,
        outcome: Outcome,
        guessed: PredictedResult | None,
        started: float,
    ) -> None:
        now = self._clock.now()
        if outcome.status in ("ok", "timeout"):
            self._session.tool_times.add(tool.name, now - started)
        if outcome.status == "ok":
            self._learn(tool, command, outcome.text, guessed)
        self._report(
            CallFinished(
                node=command.node,
                index=command.index,
                status=outcome.status,
                text=outcome.text,
                abandoned=outcome.abandoned,
                at=now,
                note=outcome.note,
                branch=self._branch,
            )
        )

    def _learn(self, tool: Tool[Any, ..., Any], command: CallTool, text: str, guessed: PredictedResult | None) -> None:
        if guessed is not None:
            self._session.trust.judge(tool.name, guessed, text)
        if tool.read_only and self._session.memo is not None:
            agent = self._program.nodes[command.asking].agent.agent.name
            self._session.memo(agent).remember(command.call.key, text)

    def _report(self, news: CallStarted | CallFinished | AgentKVError) -> None:
        self._session.report(self._branch, news)

    async def _invoke(self, tool: Tool[Any, ..., Any], command: CallTool) -> Outcome:
        context = Context(
            self._session.deps,
            run_id=self._session.run_id,
            tool=tool.name,
            call_id=command.call.id,
            attempt=command.attempt,
            sleep=self._clock.sleep,
        )
        return await invoke(
            tool,
            command.call,
            context,
            self._clock,
            limiter=self._session.threads,
            on_text=self._arrival(command),
            on_left=lambda: self.abandoned.append(tool.name),
        )

    def _arrival(self, command: CallTool) -> Callable[[str], None] | None:
        """Who is told of a stream's pieces: nobody where the model is told something else in the end."""
        if self._observer(command) is not None:
            return None
        return lambda chunk: self._session.arrived(self._branch, command.call, chunk)

    def _observer(self, command: CallTool) -> Node | None:
        """The node that turns results into other text, if one follows."""
        after = self._program.graph.after(command.node)
        node = None if after == END else self._program.graph.nodes[after]
        return node if node is not None and node.kind == "observe" and node.render is not None else None

    def _observed(self, command: CallTool, outcome: Outcome) -> Outcome:
        """What the model is told: the result, through the observe node if one follows."""
        node = self._observer(command)
        if node is None or node.render is None:
            return outcome
        call = command.call
        result = CallResult(name=call.name, arguments=call.arguments, text=outcome.whole, status=outcome.status)
        with guarded(f"observe node {node.name!r}: its render function", NodeError):
            text = node.render(result)
        if not isinstance(text, str):
            raise NodeError(f"observe node {node.name!r}: its render function returned {type(text).__name__}, not str")
        return evolve(outcome, text=clean_text(text), note="")
