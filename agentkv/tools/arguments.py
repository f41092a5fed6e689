"""The parameters of a tool's function: read from its signature, checked against a model's JSON."""

import inspect
import json
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn, get_args, get_origin, get_type_hints

from attrs import frozen
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from agentkv.errors import ToolDefinitionError
from agentkv.tools.context import Context
from agentkv.tools.schema import canonical_schema
from agentkv.tools.serialize import clean_text

__all__ = ("Arguments", "explain", "read_arguments")

_SHOWN_PROBLEMS = 10
_SHOWN_CHARACTERS = 200


@frozen(kw_only=True)
class Arguments:
    """What a function takes beside its ``Context``, and how a model's JSON becomes a call of it.

    ``deps`` is what the context must carry; ``Any`` where there is none, or it is not said.
    """

    takes_context: bool
    deps: Any
    parameters: tuple[inspect.Parameter, ...]
    model: type[BaseModel]

    def bind(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments from JSON text, by pydantic's strict JSON rules.

        An argument that the model left out keeps the function's own default, unvalidated. Raises
        pydantic's ``ValidationError``.
        """
        checked = self.model.model_validate_json(text, strict=True)
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for field, parameter in zip(type(checked).model_fields, self.parameters, strict=True):
            value = getattr(checked, field) if field in checked.model_fields_set else parameter.default
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                keywords[parameter.name] = value
        return tuple(positional), keywords

    def json_schema(self, tool: str) -> dict[str, Any]:
        """The canonical JSON schema of the arguments. Raises ``ToolDefinitionError`` naming ``tool``."""
        try:
            schema = canonical_schema(self.model.model_json_schema(schema_generator=_Schema))
            json.dumps(schema, allow_nan=False)
        except (PydanticUserError, ValueError) as error:
            problem = _first_line(error)
            raise ToolDefinitionError(f"the parameters of tool {tool!r} have no JSON schema: {problem}") from error
        return schema


class _Schema(GenerateJsonSchema):
    # a default without a JSON form stays the function's own business; it is not a reason for a warning
    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012 - an instance variable in pydantic


def read_arguments(
    function: Callable[..., Any], *, tool: str, namespace: Mapping[str, Any], descriptions: Mapping[str, str]
) -> Arguments:
    """Read the signature of ``function``; ``namespace`` holds the local names its annotations may use.

    Raises ``ToolDefinitionError`` naming the tool and the parameter at fault.
    """
    known = {**getattr(inspect.unwrap(function), "__globals__", {}), **namespace}
    parameters = list(inspect.signature(function).parameters.values())
    hints = {parameter.name: _annotation(tool, parameter, known) for parameter in parameters}
    takes_context = bool(parameters) and _is_context(hints[parameters[0].name])
    if takes_context and parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        _refuse(tool, parameters[0], "holds the Context and is keyword-only; make it an ordinary first parameter")
    rest = tuple(parameters[1:] if takes_context else parameters)
    for parameter in rest:
        if _holds_context(hints[parameter.name]):
            _refuse(tool, parameter, "holds a Context; make it the first parameter, annotated Context[Deps]")
    fields = {
        # numbered fields with aliases, so that a parameter may be called "schema", "_x" or "model_config"
        f"a{index}": (hints[parameter.name], _field(tool, parameter, hints[parameter.name], descriptions))
        for index, parameter in enumerate(rest)
    }
    deps = _context_deps(hints[parameters[0].name]) if takes_context else Any
    return Arguments(takes_context=takes_context, deps=deps, parameters=rest, model=_build(tool, rest, fields))


def _annotation(tool: str, parameter: inspect.Parameter, known: Mapping[str, Any]) -> Any:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        _refuse(tool, parameter, "collects any number of arguments; a model needs each one by name, so list them")
    if parameter.annotation is parameter.empty:
        hint = "decorate a function, or call tool() on the bound method" if parameter.name == "self" else "annotate it"
        _refuse(tool, parameter, f"has no type annotation; {hint}")
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return get_type_hints(holder, globalns=dict(known), include_extras=True)[parameter.name]
    except NameError as error:
        remedy = "import or define it, at run time, before the tool"
        _refuse(tool, parameter, f"is annotated with {error.name!r}, which is not defined; {remedy}", error)
    except (TypeError, SyntaxError, AttributeError) as error:
        _refuse(tool, parameter, f"has an annotation that cannot be read: {_first_line(error)}", error)


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    origin = get_origin(hint) or hint
    return isinstance(origin, type) and issubclass(origin, Context)


def _context_deps(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    (deps,) = get_args(hint) or (Any,)
    return deps


def _holds_context(hint: Any) -> bool:
    return _is_context(hint) or any(_holds_context(part) for part in get_args(hint))


def _field(tool: str, parameter: inspect.Parameter, hint: Any, descriptions: Mapping[str, str]) -> Any:
    if isinstance(parameter.default, FieldInfo):
        _refuse(tool, parameter, "has Field(...) as its default; write Annotated[TYPE, Field(...)] and a plain default")
    given = FieldInfo.from_annotation(hint)
    if given.alias or given.validation_alias or given.serialization_alias:
        _refuse(tool, parameter, "has an alias; rename the parameter, whose name is what the model sees")
    options: dict[str, Any] = {"alias": parameter.name}
    if given.description is None and descriptions.get(parameter.name):
        options["description"] = descriptions[parameter.name]
    return Field(... if parameter.default is parameter.empty else parameter.default, **options)


def _build(tool: str, parameters: tuple[inspect.Parameter, ...], fields: dict[str, Any]) -> type[BaseModel]:
    try:
        model: type[BaseModel] = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        model.model_rebuild()
    except (PydanticUserError, TypeError, NameError) as error:
        for parameter, (hint, _) in zip(parameters, fields.values(), strict=True):
            _check_alone(tool, parameter, hint)
        problem = _first_line(error)
        raise ToolDefinitionError(f"the parameters of tool {tool!r} do not fit together: {problem}") from error
    return model


def _check_alone(tool: str, parameter: inspect.Parameter, hint: Any) -> None:
    try:
        TypeAdapter(hint)
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError, NameError) as error:
        problem = f"has a type that JSON cannot be checked against ({_first_line(error)})"
        _refuse(tool, parameter, f"{problem}; use a type that pydantic can validate", error)


def _refuse(tool: str, parameter: inspect.Parameter, problem: str, cause: Exception | None = None) -> NoReturn:
    raise ToolDefinitionError(f"parameter {parameter.name!r} of tool {tool!r} {problem}") from cause


def explain(tool: str, error: ValidationError) -> str:
    """What the model is told about arguments that do not fit: field and problem, one a line.

    The same for the same arguments, bounded in length, and without the arguments themselves.
    """
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"- {_place(problem['loc'])}{_short(problem['msg'])}" for problem in problems[:_SHOWN_PROBLEMS]]
    if (more := len(problems) - _SHOWN_PROBLEMS) > 0:
        lines.append(f"- and {more} more")
    return "\n".join((f"Invalid arguments for `{tool}`:", *lines))


def _place(location: tuple[int | str, ...]) -> str:
    return _short(".".join(str(part) for part in location)) + ": " if location else ""


def _short(text: str) -> str:
    text = clean_text(" ".join(text.split()))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
