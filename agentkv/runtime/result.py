"""What a run that ended with an answer returns."""

from typing import Any, Generic, TypeVar

from attrs import frozen

from agentkv.chain import Message
from agentkv.report import RunReport, Totals
from agentkv.runtime.events import RunFinished
from agentkv.runtime.program import Program
from agentkv.runtime.state import State

__all__ = ("Result", "make_result")

Output = TypeVar("Output")


@frozen(kw_only=True)
class Result(Generic[Output]):
    """A run's answer.

    ``output`` is of the graph's output type; ``complete`` is False when it was cut off: at ``max_tokens``, at
    what ``Limits.tokens`` had left, or at the end of the model's context;
    ``usage`` sums the run's tokens, ``kv`` is the whole account; ``messages`` is the conversation; ``id`` the
    run's, under which its journal is stored.
    """

    output: Output
    complete: bool
    usage: Totals
    kv: RunReport
    messages: tuple[Message, ...]
    id: str


def make_result(program: Program, state: State, end: RunFinished, report: RunReport) -> Result[Any]:
    """The result of a run that ended with ``end``. Raises ``ModelOutputError`` if the answer does not validate."""
    return Result(
        output=program.graph.output_type.validate(end.text),
        complete=end.complete,
        usage=report.totals,
        kv=report,
        messages=state.messages,
        id=state.run_id,
    )
