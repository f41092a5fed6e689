"""The ``tool`` decorator and what it makes of a function."""

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from attrs import field, frozen

from agentkv.bounds import is_number, is_whole
from agentkv.errors import ToolDefinitionError
from agentkv.tools.arguments import Arguments, read_arguments
from agentkv.tools.call import ToolCall
from agentkv.tools.context import Context
from agentkv.tools.docstring import read_docstring
from agentkv.tools.serialize import clean_text

__all__ = ("Keep", "Kind", "Tool", "ToolDecorator", "tool")

Kind = Literal["async", "sync", "stream"]
Keep = Literal["head", "tail", "head+tail"]

P = ParamSpec("P")
R = TypeVar("R")
DepsT = TypeVar("DepsT")
DepsT_contra = TypeVar("DepsT_contra", contravariant=True)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


# slots are off so that each tool can carry its function's own __doc__ and __name__
@frozen(kw_only=True, eq=False, slots=False)
class Tool(Generic[DepsT_contra, P, R]):
    """A function that a model may call; calling it oneself is calling the function.

    ``DepsT`` is what the tool's ``Context`` must carry: a tool fits every agent whose deps are at least
    that, a tool without a ``Context`` fits all. ``parameters`` is the canonical JSON schema of the
    arguments. ``kind`` is how the function runs: on the event loop, in a worker thread, or as a stream of
    text. ``timeout`` is in seconds, None for no limit; ``retries`` is how often the model may try again
    after ``ToolRetry`` or invalid arguments. ``read_only`` and ``idempotent`` are hints, as in MCP.
    ``max_tokens`` bounds the result, of which ``keep`` says what stays. A ``sequential`` tool runs alone
    among the calls of its turn. ``predict`` may guess a call's result, which is prefilled while the tool runs and is
    never shown to the model; it must be quick.
    """

    name: str
    description: str
    parameters: Mapping[str, Any] = field(repr=False)
    kind: Kind
    takes_context: bool
    timeout: float | None
    retries: int
    read_only: bool
    idempotent: bool
    max_tokens: int | None
    keep: Keep
    sequential: bool
    predict: Callable[[ToolCall], str | None] | None
    arguments: Arguments = field(repr=False)
    function: Callable[P, R] = field(repr=False)

    @property
    def deps(self) -> Any:
        """What the tool's ``Context`` must carry; ``Any`` where it takes none, or does not say."""
        return self.arguments.deps

    def __attrs_post_init__(self) -> None:
        copied = ("__doc__", "__module__", "__name__", "__qualname__")
        vars(self).update({name: getattr(self.function, name) for name in copied})

    @property
    def __wrapped__(self) -> Callable[P, R]:
        return self.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


class ToolDecorator(Protocol):
    """What ``tool(...)`` with options returns: it turns a function into a ``Tool``."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context[DepsT], P], R], /
    ) -> Tool[DepsT, Concatenate[Context[DepsT], P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[object, P, R]: ...


@frozen(kw_only=True)
class _Options:
    name: str | None
    description: str | None
    timeout: float | None
    retries: int
    read_only: bool
    idempotent: bool
    max_tokens: int | None
    keep: Keep
    sequential: bool
    predict: Callable[[ToolCall], str | None] | None


@overload
def tool(
    function: Callable[Concatenate[Context[DepsT], P], R], /
) -> Tool[DepsT, Concatenate[Context[DepsT], P], R]: ...
@overload
def tool(function: Callable[P, R], /) -> Tool[object, P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    retries: int = 1,
    read_only: bool = False,
    idempotent: bool = False,
    max_tokens: int | None = None,
    keep: Keep = "head",
    sequential: bool = False,
    predict: Callable[[ToolCall], str | None] | None = None,
) -> ToolDecorator: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    retries: int = 1,
    read_only: bool = False,
    idempotent: bool = False,
    max_tokens: int | None = None,
    keep: Keep = "head",
    sequential: bool = False,
    predict: Callable[[ToolCall], str | None] | None = None,
) -> Any:
    """Make a tool of a function: ``@tool`` or ``@tool(timeout=30, ...)``; ``Tool`` says what each option means.

    The function is ``async def``, ``def`` (runs in a worker thread) or a generator of ``str`` of either sort,
    whose chunks are joined. The schema comes from its annotations, descriptions from its docstring (Google,
    NumPy or Sphinx style) or from ``Annotated[..., Field(description=...)]``; ``name`` and ``description``
    default to the function's own. A first parameter annotated ``Context[Deps]`` gets the run's context.

    Raises ``ToolDefinitionError`` naming the tool and the parameter or option at fault.
    """
    options = _Options(
        name=name,
        description=description,
        timeout=timeout,
        retries=retries,
        read_only=read_only,
        idempotent=idempotent,
        max_tokens=max_tokens,
        keep=keep,
        sequential=sequential,
        predict=predict,
    )
    if function is not None:
        return _define(function, options, sys._getframe(1).f_locals)
    return lambda decorated: _define(decorated, options, sys._getframe(1).f_locals)


def _define(function: Callable[..., Any], options: _Options, namespace: Mapping[str, Any]) -> Tool[Any, ..., Any]:
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolDefinitionError(f"tool() takes a function, not {function!r}; wrap it in a def")
    name = function.__name__ if options.name is None else options.name
    _check(name, options)
    documented = read_docstring(function.__doc__)
    arguments = read_arguments(function, tool=name, namespace=namespace, descriptions=documented.parameters)
    return Tool(
        name=name,
        description=clean_text(documented.description if options.description is None else options.description),
        parameters=arguments.json_schema(name),
        kind=_kind(function),
        takes_context=arguments.takes_context,
        timeout=options.timeout,
        retries=options.retries,
        read_only=options.read_only,
        idempotent=options.idempotent,
        max_tokens=options.max_tokens,
        keep=options.keep,
        sequential=options.sequential,
        predict=options.predict,
        arguments=arguments,
        function=function,
    )


def _check(name: object, options: _Options) -> None:
    timeout: object = options.timeout
    hints = {"read_only": options.read_only, "idempotent": options.idempotent, "sequential": options.sequential}
    problems = {
        f"description={options.description!r} must be text, or None for the function's own": (
            not isinstance(options.description, str | None)
        ),
        f"predict={options.predict!r} must be a function of the call, or None": (
            options.predict is not None and not callable(options.predict)
        ),
        **{f"{hint}={value!r} must be True or False": not isinstance(value, bool) for hint, value in hints.items()},
        f"name {name!r} must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -; set name=": (
            not (isinstance(name, str) and _NAME.fullmatch(name))
        ),
        f"timeout={timeout!r} must be a number of seconds above 0, or None": (
            timeout is not None and not (is_number(timeout) and 0 < timeout < math.inf)
        ),
        f"retries={options.retries!r} must be a whole number, 0 or more": not is_whole(options.retries, 0),
        f"max_tokens={options.max_tokens!r} must be a whole number, 1 or more, or None": (
            options.max_tokens is not None and not is_whole(options.max_tokens, 1)
        ),
        f"keep={options.keep!r} must be 'head', 'tail' or 'head+tail'": (
            options.keep not in ("head", "tail", "head+tail")
        ),
    }
    if problem := next((text for text, wrong in problems.items() if wrong), None):
        raise ToolDefinitionError(f"tool {name!r}: {problem}")


def _kind(function: Callable[..., Any]) -> Kind:
    # a decorator in between may hide what the function is; what it wraps tells
    inner = inspect.unwrap(function)
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(inner):
        return "stream"
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner):
        return "async"
    return "sync"
