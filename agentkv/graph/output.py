"""What an agent's answer must be: text, or JSON of a declared type."""

import functools
import operator
import types
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

import attrs
from attrs import field, frozen
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic import create_model as pydantic_model

from agentkv.errors import ModelOutputError, NodeError, SetupError
from agentkv.raised import guarded
from agentkv.tools.schema import canonical_schema

__all__ = ("OutputType", "read_output_type")

_SHOWN_PROBLEMS = 5


@frozen
class OutputType:
    """``schema`` is the JSON schema that constrains an answer, None where any text is one.

    ``whose`` names in messages who gives it.
    """

    schema: Mapping[str, Any] | None
    adapter: TypeAdapter[Any] | None = field(repr=False, eq=False)
    whose: str = field(eq=False)

    def validate(self, text: str) -> Any:
        """The value that ``text`` stands for.

        Raises ``ModelOutputError`` naming each wrong field, ``NodeError`` where the type's own validation raises.
        """
        if self.adapter is None:
            return text
        # a validator of the user's may raise anything
        with guarded(f"{self.whose}: the output type's own validation", NodeError):
            try:
                return self.adapter.validate_json(text)
            except ValidationError as error:
                wrong = error
        raise ModelOutputError(_explain(wrong)) from wrong


def read_output_type(output: Any, whose: str) -> OutputType:
    """Read what an answer of ``whose`` must be: ``str``, or any type that pydantic or attrs can build from JSON.

    ``whose`` names an agent or a graph in messages. Raises ``SetupError`` naming it and the type.
    """
    if output is str:
        return OutputType(None, None, whose)
    try:
        adapter = TypeAdapter(_for_pydantic(output, ()))
        return OutputType(canonical_schema(adapter.json_schema()), adapter, whose)
    except Exception as error:
        # of what is no type, pydantic raises anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SetupError(
            f"{whose}: output={output!r} cannot be read from JSON ({reason}); use str, a pydantic model, "
            "a dataclass, an attrs class, a TypedDict, or a type made of these"
        ) from error


def _explain(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, problem['loc'])) or 'answer'}: {problem['msg']}" for problem in problems]
    more = len(shown) - _SHOWN_PROBLEMS
    return "; ".join(shown[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else []))


def _for_pydantic(output: Any, inside: tuple[Any, ...]) -> Any:
    """``output`` with every attrs class in it, of which pydantic knows nothing, replaced by what builds it."""
    if isinstance(output, type) and attrs.has(output) and not issubclass(output, BaseModel):
        if output in inside:
            raise TypeError(f"attrs class {output.__name__} contains itself")
        return _attrs_builder(output, (*inside, output))
    origin, arguments = get_origin(output), get_args(output)
    replaced = tuple(_for_pydantic(argument, inside) for argument in arguments)
    if replaced == arguments:
        return output
    if origin is types.UnionType:
        return functools.reduce(operator.or_, replaced)
    return origin[replaced] if origin is not Annotated else Annotated[replaced]


def _attrs_builder(cls: type[attrs.AttrsInstance], inside: tuple[Any, ...]) -> Any:
    attributes = [each for each in attrs.fields(attrs.resolve_types(cls, include_extras=True)) if each.init]
    # numbered, so that a field may have a name that pydantic keeps for itself
    model = pydantic_model(
        cls.__name__,
        __config__=ConfigDict(extra="forbid"),
        __doc__=cls.__doc__,
        **{f"a{i}": (_for_pydantic(each.type, inside), _pydantic_field(each)) for i, each in enumerate(attributes)},  # type: ignore[call-overload]  # pydantic's overloads know literal names only
    )

    def build(read: BaseModel) -> Any:
        # what the model left out keeps the class's own default
        given = {f"a{i}": each.alias for i, each in enumerate(attributes)}
        try:
            return cls(**{given[name]: getattr(read, name) for name in sorted(read.model_fields_set)})
        except TypeError as error:
            raise ValueError(str(error)) from error

    return Annotated[model, AfterValidator(build)]


def _pydantic_field(attribute: Any) -> Any:
    if attribute.default is attrs.NOTHING:
        return Field(alias=attribute.alias)
    if isinstance(attribute.default, attrs.Factory):  # type: ignore[arg-type]  # a class, typed as a function
        return Field(default_factory=lambda: None, alias=attribute.alias)
    return Field(default=attribute.default, alias=attribute.alias)
