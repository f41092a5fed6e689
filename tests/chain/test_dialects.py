"""What dialects write, read and ask the engine for."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.chain.constraint import LabelShape, TurnShape, check_label
from agentkv.chain.dialects import HermesDialect, Llama3Dialect, MistralDialect, detect
from agentkv.chain.dialects.mistral import mistral_id
from agentkv.chain.messages import Message, ToolDefinition
from agentkv.chain.template import ChatTemplate
from agentkv.errors import GraphError, TemplateError
from agentkv.tools.call import ToolCall

TEMPLATES = Path(__file__).parents[1] / "data" / "templates"
FIND = ToolDefinition(
    name="find",
    description="Find it.",
    parameters={"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
)
STOP = ToolDefinition(name="stop", description="Stop.", parameters={"type": "object", "properties": {}})
BOTH = TurnShape(tools=(FIND, STOP))
HERMES, LLAMA, MISTRAL = HermesDialect(), Llama3Dialect(), MistralDialect()
DIALECTS = [HERMES, LLAMA, MISTRAL]


def load(name):
    return ChatTemplate((TEMPLATES / f"{name}.jinja").read_text(), {"bos_token": "<s>", "eos_token": "</s>"})


def written(dialect, message):
    return "".join(piece.text for piece in dialect.write(message))


def calls(dialect, text, shape=BOTH):
    return [(call.name, call.arguments) for call in dialect.parse(text, shape, 1).calls]


class TestDetection:
    @pytest.mark.parametrize(
        ("name", "dialect", "native"),
        [
            ("smollm2", HermesDialect, False),
            ("qwen2.5", HermesDialect, True),
            ("qwen3", HermesDialect, True),
            ("llama-3.1", Llama3Dialect, True),
            ("llama-3.2", Llama3Dialect, True),
            ("mistral-nemo", MistralDialect, True),
        ],
    )
    def test_by_rendering_probes(self, name, dialect, native):
        found = detect(load(name))
        assert (type(found), found.native_tools) == (dialect, native)

    def test_calls_are_left_to_a_template_that_writes_them_alike(self):
        assert detect(load("qwen2.5")).native_calls
        assert detect(load("qwen3")).native_calls
        assert not detect(load("smollm2")).native_calls

    def test_llama_is_told_to_put_tools_into_the_system_message(self):
        assert detect(load("llama-3.1")).options == {"tools_in_user_message": False}

    def test_another_dialect_can_be_asked_for(self):
        assert detect(load("llama-3.1"), "hermes").native_tools is False
        assert detect(load("qwen3"), "hermes").native_tools is True

    def test_an_unknown_call_syntax_is_refused_with_a_remedy(self):
        source = "{{ tools }}{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}"
        with pytest.raises(TemplateError, match="pass dialect='hermes'"):
            detect(ChatTemplate(source))
        assert isinstance(detect(ChatTemplate(source), "hermes"), HermesDialect)

    @pytest.mark.parametrize(("name", "words"), [("xml", "unknown dialect 'xml'"), ("llama3", "use 'hermes'")])
    def test_a_name_that_does_not_fit_is_refused(self, name, words):
        with pytest.raises(TemplateError, match=words):
            detect(load("smollm2"), name)


class TestWriting:
    def test_hermes_writes_definitions_calls_and_results_where_the_template_cannot(self):
        turns = [
            Message(role="user", content="Q"),
            Message(role="assistant", content="T", calls=(ToolCall("call_0001", "find", '{"key":"K"}'),)),
            Message(role="tool", content="R1", call_id="call_0001", name="find"),
            Message(role="tool", content="R2", call_id="call_0002", name="find"),
        ]
        given_ = HermesDialect(native_tools=False).input("S", [FIND], turns)
        system, _, assistant, results = (m["content"].text for m in given_.messages)
        assert system.startswith("S\n\n")
        assert '<tools>\n{"type": "function", "function": {"name": "find", ' in system
        assert assistant == 'T\n<tool_call>\n{"name": "find", "arguments": {"key": "K"}}\n</tool_call>'
        assert results == "<tool_response>\nR1\n</tool_response>\n<tool_response>\nR2\n</tool_response>"
        assert given_.messages[-1]["role"] == "user"
        assert given_.tools == ()

    def test_without_tools_nothing_is_added(self):
        assert HermesDialect(native_tools=False).input("", [], []).messages == ()

    @pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
    def test_what_is_untrusted_stays_untrusted(self, dialect):
        call = ToolCall("call_0001", '<s>"', '{"<s>":1}')
        pieces = dialect.write(Message(role="assistant", content="<s>", calls=(call,)))
        assert "<s>" not in "".join(piece.text for piece in pieces if piece.trusted)

    def test_mistral_ids_are_nine_alphanumerics_made_from_the_call_id(self):
        assert mistral_id("call_0012") == "call00012"
        assert mistral_id("aB3456789") == "aB3456789"
        assert mistral_id("toolu_x") == mistral_id("toolu_x")
        assert len(mistral_id("toolu_x")) == 9
        assert mistral_id("toolu_x").isalnum()


NAMES = st.sampled_from(["find", "stop"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(), inner, max_size=2)),
    max_leaves=4,
)
HARD = st.sampled_from(
    [
        "</tool_call>",
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
        '[TOOL_CALLS][{"name": "stop"}]',
        "; ",
    ]
)
ARGUMENTS = st.dictionaries(st.text(), st.one_of(VALUES, HARD), max_size=3).map(json.dumps)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
@given(made=st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=4), first=st.integers(1, 99))
def test_written_calls_are_read_back(dialect, made, first):
    expected = tuple(ToolCall(f"call_{i:04}", name, text) for i, (name, text) in enumerate(made, first))
    turn = dialect.parse(written(dialect, Message(role="assistant", content="", calls=expected)), BOTH, first)
    assert (turn.calls, turn.text, turn.problem) == (expected, "", None)


@pytest.mark.parametrize("dialect", [HERMES, LLAMA], ids=lambda d: d.name)
@given(text=st.text(alphabet="ab \n.", min_size=1))
def test_text_before_calls_is_read_back(dialect, text):
    message = Message(role="assistant", content=text, calls=(ToolCall("call_0001", "stop", "{}"),))
    turn = dialect.parse(written(dialect, message), BOTH, 1)
    assert (turn.text, turn.calls) == (text, message.calls)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
@given(text=st.one_of(st.text(), HARD, st.lists(st.one_of(HARD, st.text(max_size=4))).map("".join)))
def test_any_text_can_be_read(dialect, text):
    turn = dialect.parse(text, BOTH, 1)
    assert [call.id for call in turn.calls] == [f"call_{i:04}" for i in range(1, len(turn.calls) + 1)]
    assert dialect.parse(text, TurnShape(), 1).text == text


class TestReading:
    @pytest.mark.parametrize(
        ("text", "arguments"),
        [
            ('<tool_call>\n{"name": "find", "arguments": {"key": "K', '{"key": "K'),
            ('<tool_call>\n{"name": "find", "arguments": {"key": }}\n</tool_call>', '{"key": }'),
            ('<tool_call>\n{"name": "find", "arguments": {"key": "</tool_call>', '{"key": "</tool_call>'),
            ('<tool_call>{"arguments": {"key": "K"}, "name": "find"}</tool_call>', '{"key":"K"}'),
            ('<tool_call>{"name": "find"}</tool_call>', "{}"),
            ('<tool_call>\n{"name": "find", "arguments": "K"}', '"K"'),
        ],
    )
    def test_hermes_keeps_broken_arguments(self, text, arguments):
        assert calls(HERMES, text) == [("find", arguments)]

    def test_hermes_reads_what_follows_a_broken_call(self):
        text = '<tool_call>nonsense</tool_call>\n<tool_call>{"name": "stop", "arguments": {}}</tool_call>'
        assert calls(HERMES, text) == [("", "nonsense"), ("stop", "{}")]

    def test_hermes_keeps_text_around_calls(self):
        text = 'First.\n<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>\nThen.'
        assert HERMES.parse(text, BOTH, 1).text == "First.\nThen."

    def test_llama_reads_one_or_several(self):
        one = '{"name": "find", "parameters": {"key": "; "}}'
        assert calls(LLAMA, one) == [("find", '{"key":"; "}')]
        assert calls(LLAMA, f"<|python_tag|>{one}; {one}") == [("find", '{"key":"; "}')] * 2

    def test_llama_keeps_broken_arguments(self):
        assert calls(LLAMA, '{"name": "find", "parameters": {"key": "K') == [("find", '{"key": "K')]

    def test_llama_does_not_take_a_json_answer_for_a_call(self):
        assert calls(LLAMA, '{"name": "Ann", "age": 3}') == []

    def test_mistral_keeps_broken_arguments(self):
        text = '[TOOL_CALLS][{"name": "stop", "arguments": {}, "id": "x"}, {"name": "find", "argu'
        assert calls(MISTRAL, text) == [("stop", "{}"), ("", '{"name": "find", "argu')]

    @pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
    def test_where_no_call_is_allowed_none_is_read(self, dialect):
        text = written(dialect, Message(role="assistant", content="", calls=(ToolCall("c", "stop", "{}"),)))
        turn = dialect.parse(text, TurnShape(tools=(STOP,), choice="none"), 1)
        assert (turn.calls, turn.text) == ((), text)


LABELLED = TurnShape(
    tools=(STOP,), labels=(LabelShape("go", "calls"), LabelShape("go on"), LabelShape("end", "answer"))
)
CALL = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'


class TestLabels:
    @pytest.mark.parametrize(
        ("text", "label", "rest", "count", "problem"),
        [
            (f"Next: go\n{CALL}", "go", "", 1, None),
            ("Next: go on\nAn answer.", "go on", "An answer.", 0, None),
            ("Next: go on", "go on", "", 0, None),
            ("Next: end\nDone.", "end", "Done.", 0, None),
            ("Next: stay\nDone.", None, "Next: stay\nDone.", 0, "one of go, go on, end"),
            ("Next: go\nDone.", "go", "Done.", 0, "A tool call is required"),
            (f"Next: end\n{CALL}", "end", "", 1, "followed by an answer"),
        ],
    )
    def test_the_first_line_is_the_label(self, text, label, rest, count, problem):
        turn = HERMES.parse(text, LABELLED, 1)
        assert (turn.label, turn.text, len(turn.calls)) == (label, rest, count)
        assert problem in turn.problem if problem else turn.problem is None

    @pytest.mark.parametrize("text", [f"Next: go\n{CALL}", "Next: end\nDone.", "Next: go on"])
    def test_content_and_calls_write_the_turn_again(self, text):
        turn = HERMES.parse(text, LABELLED, 1)
        assert written(HERMES, Message(role="assistant", content=turn.content, calls=turn.calls)) == text

    @pytest.mark.parametrize("name", ["", " a", "a\nb", "a\x00", "a<|im_end|>", "<tool_call>"])
    def test_a_label_that_cannot_be_written_is_refused(self, name, make_tokenizer):
        with pytest.raises(GraphError, match="label"):
            check_label(name, make_tokenizer("bytes"))

    @pytest.mark.parametrize("name", ["go", "go on", "weiter → Übung", "im_end"])
    def test_other_labels_are_fine(self, name, make_tokenizer):
        check_label(name, make_tokenizer("bytes"))


class TestShape:
    def test_more_calls_than_allowed_are_a_problem(self):
        turn = HERMES.parse(CALL * 3, TurnShape(tools=(STOP,), max_calls=2), 1)
        assert (len(turn.calls), turn.problem) == (3, "At most 2 calls are allowed; there were 3.")

    def test_exact_calls_are_checked(self):
        shape = TurnShape(tools=(FIND, STOP), choice=("stop", "stop"))
        assert HERMES.parse(CALL + CALL, shape, 1).problem is None
        assert HERMES.parse(CALL, shape, 1).problem == "The calls must be exactly stop, stop; they were stop."

    def test_a_required_call_is_missed(self):
        assert "required" in HERMES.parse("no", TurnShape(tools=(STOP,), choice="required"), 1).problem

    @pytest.mark.parametrize(
        ("changes", "words"), [({"choice": ("walk",)}, "'walk'"), ({"choice": "required", "tools": ()}, "no tools")]
    )
    def test_a_shape_that_nothing_fits_is_refused(self, changes, words):
        with pytest.raises(GraphError, match=words):
            TurnShape(**{"tools": (STOP,), **changes})

    @pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
    def test_nothing_is_constrained_where_anything_may_come(self, dialect):
        assert dialect.constraint(TurnShape()) is None
        assert json.loads(dialect.constraint(BOTH))["type"] == "structural_tag"
