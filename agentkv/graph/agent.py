"""An agent: a model's instructions and tools, and the type of its answers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Generic, cast

from attrs import field, frozen
from typing_extensions import TypeForm, TypeVar

from agentkv.bounds import is_number, is_whole
from agentkv.errors import ModelOutputError, SetupError
from agentkv.graph.output import OutputType, read_output_type
from agentkv.tools import Tool

__all__ = ("Agent",)

DepsT_contra = TypeVar("DepsT_contra", contravariant=True, default=None)
OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)


@frozen(init=False)
class Agent(Generic[DepsT_contra, OutputT_co]):
    """A plain declaration; a ``Runtime`` runs it, by itself or as the agent of a graph's nodes.

    ``instructions`` is the system prompt. ``tools`` are kept in the order of their names, so that one set
    of tools is one prompt. ``deps`` is the class of what the run hands to the tools. ``output`` is the type
    of an answer: text, or what pydantic or attrs reads from JSON. ``temperature`` 0 is greedy;
    ``max_tokens`` bounds one generation; ``retries`` is how often in a row an unusable generation is
    asked for again. Two agents of one name in one graph must be equal.
    """

    name: str
    instructions: str = field(repr=False)
    tools: tuple[Tool[DepsT_contra, ..., Any], ...] = field(repr=False, hash=False)
    deps: type[Any]
    output: Any = field(hash=False)
    temperature: float
    top_p: float
    max_tokens: int
    retries: int
    _output_type: OutputType = field(repr=False, eq=False)

    def __init__(
        self,
        name: str,
        *,
        instructions: str,
        tools: Sequence[Tool[DepsT_contra, ..., Any]] = (),
        # the type variables' own defaults say what these mean where they are left out
        deps: type[DepsT_contra] = NoneType,  # type: ignore[assignment]
        output: TypeForm[OutputT_co] = str,  # type: ignore[assignment]
        temperature: float = 0.0,
        top_p: float = 1.0,
        max_tokens: int = 512,
        retries: int = 2,
    ) -> None:
        """Raise ``SetupError`` naming the agent and the field where the declaration is wrong."""
        _check_texts(name, instructions)
        _check_numbers(name, temperature=temperature, top_p=top_p, max_tokens=max_tokens, retries=retries)
        self.__attrs_init__(
            name,
            instructions,
            _canonical_tools(name, tools, deps),
            deps,
            output,
            temperature,
            top_p,
            max_tokens,
            retries,
            read_output_type(output, f"agent {name!r}"),
        )

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The canonical JSON schema of an answer; None where any text is one."""
        return self._output_type.schema

    def validate_output(self, text: str) -> OutputT_co:
        """The answer that ``text`` stands for. Raises ``ModelOutputError`` naming each wrong field."""
        return cast("OutputT_co", self._output_type.validate(text))

    def answer_problem(self, text: str) -> str:
        """What is wrong with ``text`` as an answer, to be told to the model; empty if nothing is."""
        try:
            self._output_type.validate(text)
        except ModelOutputError as error:
            return f"This is not a valid answer: {error}."
        return ""


def _check_texts(agent: object, instructions: object) -> None:
    if not isinstance(agent, str):
        raise SetupError(f"agent {agent!r}: a name must be text, not {type(agent).__name__}")
    if not agent or agent != agent.strip():
        raise SetupError(f"agent {agent!r}: a name must not be empty or have space around it")
    if not isinstance(instructions, str):
        raise SetupError(f"agent {agent!r}: instructions must be text, not {type(instructions).__name__}")


def _check_numbers(agent: str, *, temperature: object, top_p: object, max_tokens: object, retries: object) -> None:
    problems = {
        f"temperature={temperature!r} must be 0 or more": not (is_number(temperature) and temperature >= 0),
        f"top_p={top_p!r} must be above 0 and at most 1": not (is_number(top_p) and 0 < top_p <= 1),
        f"max_tokens={max_tokens!r} must be a whole number of at least 1": not is_whole(max_tokens, 1),
        f"retries={retries!r} must be a whole number, 0 or more": not is_whole(retries, 0),
    }
    if problem := next((text for text, wrong in problems.items() if wrong), None):
        raise SetupError(f"agent {agent!r}: {problem}")


def _canonical_tools(agent: str, tools: Any, deps: Any) -> tuple[Any, ...]:
    if isinstance(tools, Tool) or not isinstance(tools, Iterable):
        raise SetupError(f"agent {agent!r}: tools={tools!r} must be a list of tools, as [{_shown(tools)}]")
    tools = tuple(tools)
    for tool in tools:
        if not isinstance(tool, Tool):
            raise SetupError(f"agent {agent!r}: {tool!r} is not a tool; decorate the function with @tool")
        if not _carries(deps, tool.deps):
            raise SetupError(
                f"agent {agent!r}: tool {tool.name!r} takes Context[{_name(tool.deps)}], but the agent's deps are "
                f"{_name(deps)}; declare the agent with deps={_name(tool.deps)}"
            )
    counts = Counter(tool.name for tool in tools)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise SetupError(f"agent {agent!r} has two tools named {twice[0]!r}; rename one: @tool(name=...)")
    return tuple(sorted(tools, key=lambda tool: tool.name))


def _carries(deps: Any, wanted: Any) -> bool:
    """Whether an agent's deps are what a tool's context must carry, as far as that can be told without a value."""
    if wanted is Any or isinstance(wanted, TypeVar):
        return True
    try:
        return issubclass(deps, wanted)
    except TypeError:  # a typing construct, of which only nothing at all is surely not an instance
        return deps is not NoneType


def _name(kind: Any) -> str:
    return "None" if kind is NoneType else getattr(kind, "__name__", str(kind))


def _shown(tool: object) -> str:
    return getattr(tool, "name", None) or repr(tool)
