"""What constraints let through, by the grammar compiler that vLLM uses."""

import pytest

from agentkv.chain.constraint import LabelShape, TurnShape
from agentkv.chain.dialects import HermesDialect, Llama3Dialect, MistralDialect
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.tools.call import ToolCall

FIND = ToolDefinition(
    name="find",
    description="Find it.",
    parameters={
        "type": "object",
        "properties": {"key": {"type": "string"}},
        "required": ["key"],
        "additionalProperties": False,
    },
)
STOP = ToolDefinition(
    name="stop", description="Stop.", parameters={"type": "object", "properties": {}, "additionalProperties": False}
)
ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
MARK = "[TOOL_CALLS]"
MARK_ID = 256
DIALECTS = [HermesDialect(), Llama3Dialect(), MistralDialect(mark_id=MARK_ID)]


@pytest.fixture(scope="module")
def accepts():
    """Whether a shape's constraint accepts a text as a whole."""
    import xgrammar

    # One token a byte, and the one control token that a dialect names.
    vocabulary = [bytes([byte]) for byte in range(256)] + [MARK.encode(), b"</s>"]
    info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[257])
    compiler = xgrammar.GrammarCompiler(info)

    def check(dialect, shape, text, next_call_number=1):
        tag = dialect.constraint(shape, next_call_number)
        xgrammar.Grammar.from_structural_tag(tag)  # vLLM's own check, before it compiles with a vocabulary
        matcher = xgrammar.GrammarMatcher(compiler.compile_structural_tag(tag))
        ids = [*([MARK_ID] if MARK in text else []), *text.replace(MARK, "").encode()]
        return all(matcher.accept_token(id_) for id_ in ids) and matcher.accept_token(257)

    return check


def text_of(dialect, *names, content=""):
    calls = [
        ToolCall(f"call_{i:04}", name, '{"key": "K </tool_call>"}' if name == "find" else "{}")
        for i, name in enumerate(names, 1)
    ]
    message = Message(role="assistant", content=content, calls=tuple(calls))
    return "".join(piece.text for piece in dialect.write(message))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
class TestEveryDialect:
    def test_required_calls(self, accepts, dialect):
        shape = TurnShape(tools=(FIND, STOP), choice="required", max_calls=2)
        assert accepts(dialect, shape, text_of(dialect, "find"))
        assert accepts(dialect, shape, text_of(dialect, "stop", "find"))
        assert not accepts(dialect, shape, text_of(dialect, "stop", "stop", "stop"))
        assert not accepts(dialect, shape, "Let me think.")
        assert not accepts(dialect, shape, "")

    def test_exact_calls(self, accepts, dialect):
        shape = TurnShape(tools=(FIND, STOP), choice=("stop", "find"))
        assert accepts(dialect, shape, text_of(dialect, "stop", "find"))
        assert not accepts(dialect, shape, text_of(dialect, "find", "stop"))
        assert not accepts(dialect, shape, text_of(dialect, "stop"))

    def test_calls_or_free_text(self, accepts, dialect):
        shape = TurnShape(tools=(FIND, STOP))
        assert accepts(dialect, shape, text_of(dialect, "find", "stop"))
        assert accepts(dialect, shape, "It is { 3 }.\n\nYes.")

    def test_unknown_tools_and_wrong_arguments(self, accepts, dialect):
        shape = TurnShape(tools=(STOP,), choice="required")
        assert not accepts(dialect, shape, text_of(dialect, "find"))
        assert not accepts(dialect, shape, text_of(dialect, "stop").replace("{}", '{"a": 1}'))

    def test_calls_or_an_answer_of_a_schema(self, accepts, dialect):
        shape = TurnShape(tools=(STOP,), answer=ANSWER)
        assert accepts(dialect, shape, text_of(dialect, "stop"))
        assert accepts(dialect, shape, '{"n": 3}')
        assert not accepts(dialect, shape, "three")

    def test_no_calls(self, accepts, dialect):
        shape = TurnShape(tools=(STOP,), choice="none")
        assert accepts(dialect, shape, "Well.")
        assert not accepts(dialect, shape, text_of(dialect, "stop"))

    def test_labels_come_first(self, accepts, dialect):
        labels = (LabelShape("go", "calls"), LabelShape("go on"), LabelShape("end", "answer"))
        shape = TurnShape(tools=(STOP,), labels=labels)
        assert accepts(dialect, shape, "Next: end\nDone.")
        assert accepts(dialect, shape, "Next: go on\nHm.")
        assert not accepts(dialect, shape, "Next: go\nDone.")
        assert not accepts(dialect, shape, "Next: stay\n")
        assert not accepts(dialect, shape, "Done.")

    def test_white_space_in_json_is_bounded(self, accepts, dialect):
        shape = TurnShape(answer=ANSWER)
        assert accepts(dialect, shape, '{ "n": 3 }')
        assert not accepts(dialect, shape, '{  "n": 3}')
        assert not accepts(dialect, shape, '{"n":\n\n3}')


@pytest.mark.parametrize("dialect", DIALECTS[:2], ids=lambda d: d.name)
def test_a_label_is_followed_by_calls(accepts, dialect):
    shape = TurnShape(tools=(STOP,), labels=(LabelShape("go", "calls"),))
    assert accepts(dialect, shape, "Next: go\n" + text_of(dialect, "stop"))


def test_hermes_lets_the_model_think_before_calls(accepts):
    dialect, shape = DIALECTS[0], TurnShape(tools=(FIND, STOP))
    assert accepts(dialect, shape, text_of(dialect, "find", "stop", content="First I look."))
    assert not accepts(dialect, shape, "First.\n<tool_call>\nnonsense")


def test_mistral_ids_follow_the_calls_of_the_run(accepts):
    dialect = DIALECTS[2]
    shape = TurnShape(tools=(STOP,), choice="required", max_calls=2)
    text = text_of(dialect, "stop", "stop")
    later = text.replace("call00001", "call00012").replace("call00002", "call00013")
    assert accepts(dialect, shape, later, 12)
    assert not accepts(dialect, shape, text, 12)
    exact = TurnShape(tools=(STOP,), choice=("stop", "stop"))
    assert accepts(dialect, exact, later, 12)
    assert not accepts(dialect, exact, text, 12)
