"""The chain law: appended turn by turn, a conversation is what one rendering of the whole of it is."""

import gzip
import json
import os
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Whole

from agentkv.chain.constraint import TurnShape
from agentkv.chain.dialects import detect
from agentkv.chain.format import ChatFormat
from agentkv.chain.messages import ToolDefinition, from_openai
from agentkv.chain.template import ChatTemplate
from agentkv.chain.tokenizer import Piece
from agentkv.errors import TemplateError

from .conftest import FIND, NAMES, assistant, call, result, user

DATA = Path(__file__).parents[2] / "data"
SOURCES = ("bfcl", "miniswe", "sweagent", "taubench", "toolbench")
FULL_SET = os.environ.get("AGENTKV_TRAJECTORIES")

# Templates that rewrite at a boundary. Nothing else may.
REWRITES = {
    "qwen3": {"user message"},  # drops the reasoning of earlier turns
    "mistral-nemo": {"user message", "tool result"},  # tools and system message move to the last user message
}


def grow(chat, system, tools, messages):
    """A chain built turn by turn: what it asks each generation for, and what it holds behind the last."""
    chain, held, prompts = [], 0, []
    for index, message in enumerate(messages):
        if message.role == "assistant":
            chain += chat.delta(system, tools, messages[:held], messages[held:index])
            prompts.append((index, list(chain)))
            chain += chat.generation(message)
            held = index + 1
    return prompts, chain, held


def check_law(chat, system, tools, messages):
    prompts, chain, held = grow(chat, system, tools, messages)
    whole = chat.render(system, tools, messages[:held], generation_prompt=False)
    assert whole[: len(chain)] == chain
    assert chat.tokenizer.decode(whole[len(chain) :]).strip() == ""
    anchor = chat.anchor(system, tools)
    assert all(prompt[: len(anchor)] == anchor for _, prompt in prompts)
    return prompts


def read(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            recorded = json.loads(line)
            tools = [
                ToolDefinition(
                    name=tool["function"]["name"],
                    description=tool["function"].get("description", ""),
                    parameters=tool["function"].get("parameters", {}),
                )
                for tool in recorded["tools"]
            ]
            yield recorded["system"], tools, from_openai(recorded["turns"])


class TestRecordedConversations:
    @pytest.mark.parametrize("source", SOURCES)
    def test_grow_into_one_rendering(self, demo, source):
        for system, tools, messages in read(DATA / "trajectories" / f"{source}.jsonl"):
            prompts = check_law(demo, system, tools, messages)
            for index, prompt in prompts:
                assert prompt == demo.render(system, tools, messages[:index])

    if FULL_SET:  # the whole of what the samples are taken from, where someone has it

        @pytest.mark.parametrize("source", SOURCES)
        @pytest.mark.timeout(600)
        def test_the_full_set_grows_into_one_rendering(self, demo, source):
            for system, tools, messages in read(Path(FULL_SET) / f"{source}.jsonl.gz"):
                check_law(demo, system, tools, messages)

    def test_a_rendering_is_what_the_library_makes_of_the_templates_text(self, demo, demo_model_path):
        whole = Whole.from_file(str(demo_model_path / "tokenizer.json"))
        messages = [user("Hello  there!\n"), assistant("Hi."), user("17 + 4?")]
        text = demo.template.text([{"role": m.role, "content": m.content} for m in messages], (), True)
        assert demo.render("", (), messages) == whole.encode(text, add_special_tokens=False).ids
        assert text.startswith(
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        )


class TestLaw:
    LOOP = (
        user("Where is 17?"),
        assistant("", call(1), call(2)),
        result(1, "shipped"),
        result(2, "late"),
        assistant("Look.", call(3)),
        result(3, ""),
        assistant("It is late."),
    )

    def test_each_prompt_of_the_tool_loop_is_a_rendering(self, chat):
        prompts, _, _ = grow(chat, "Be brief.", [FIND], self.LOOP)
        same = [prompt == chat.render("Be brief.", [FIND], self.LOOP[:index]) for index, prompt in prompts]
        assert same == [True, *[name_of(chat) != "mistral-nemo"] * 2]

    def test_without_a_system_message_every_tool_loop_grows(self, chat):
        prompts, _, _ = grow(chat, "", [FIND], self.LOOP)
        for index, prompt in prompts:
            assert prompt == chat.render("", [FIND], self.LOOP[:index])

    def test_rewrites_are_known_before_they_happen(self, chat):
        rewrites = REWRITES.get(name_of(chat), set())
        assert chat.drops_history("tool result") is ("tool result" in rewrites)
        assert chat.drops_history("user message") is ("user message" in rewrites)
        assert chat.appends([result(1, "x"), None]) is ("tool result" not in rewrites)
        assert chat.appends([user("x")]) is ("user message" not in rewrites)

    def test_an_open_turn_is_closed_first(self, chat):
        end = chat.tokenizer.decode(chat.stop_ids[:1])
        before, new = self.LOOP[:2], self.LOOP[2:4]
        closed, open_ = (chat.delta("", [FIND], before, new, closed=closed) for closed in (True, False))
        assert open_ == [chat.tokenizer.token_id(end), *closed]

    def test_delta_costs_what_is_new(self, chat):
        long = [m for i in range(40) for m in (user(f"Question {i} " * 50), assistant("Answer " * 50))]
        short = long[-2:]
        system, tools = ("", ()) if name_of(chat) == "mistral-nemo" else ("Be brief.", [FIND])
        new = [user("And now?")]
        assert chat.delta(system, tools, long, new) == chat.delta(system, tools, short, new)

    def test_a_chain_can_end_with_a_user_message(self, chat):
        if name_of(chat) == "mistral-nemo":
            with pytest.raises(TemplateError, match="alternate"):
                chat.delta("", (), [user("a")], [user("b")])
            return
        trunk = chat.delta("", (), (), [user("a")], generation_prompt=False)
        assert trunk + chat.delta("", (), [user("a")], [user("b")]) == chat.render("", (), [user("a"), user("b")])

    def test_generated_text_keeps_its_own_token_boundaries(self, demo):
        said = assistant("\n\nYes.")
        prompt, text = demo.delta("", (), (), [user("a")]), demo.tokenizer.encode([Piece(said.content, False)])
        whole = demo.render("", (), [user("a"), said], generation_prompt=False)
        assert whole[: len(prompt) + len(text)] == prompt + text
        joined = demo.template.layout(
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": said.content}]
        )
        assert whole != demo.tokenizer.encode(joined.pieces())

    def test_a_text_without_white_space_around_it_is_encoded_as_ever(self, chat):
        messages = [user("Where?"), assistant("Yes, there."), user("Thanks.")]
        plain = [{"role": message.role, "content": message.content} for message in messages]
        joined = chat.template.layout(plain, (), generation_prompt=True)
        assert chat.render("", (), messages) == chat.tokenizer.encode(joined.pieces())

    def test_what_is_appended_is_the_end_of_a_rendering(self, chat):
        before, new = [user("a"), assistant("b"), user("c"), assistant("d")], [user("e")]
        delta = chat.delta("Be brief.", [FIND], before, new)
        assert chat.render("Be brief.", [FIND], [*before, *new])[-len(delta) :] == delta

    def test_a_call_is_kept_whole_by_a_template_that_looks_into_contents(self, formats):
        said = assistant("", call(1, "</think>"))
        whole = formats["qwen3"].render("", [FIND], [user("a"), said, result(1, "b")])
        assert '<tool_call>\n{"name": "find", "arguments": {"key": "</think>"}}' in formats["qwen3"].tokenizer.decode(
            whole
        )

    @pytest.mark.parametrize("text", ["", " ", "\n", "Look.", "Look.\n", "\n\nLook. \n\n"])
    @pytest.mark.parametrize("name", ["smollm2", "qwen2.5", "qwen3"])
    def test_calls_behind_any_text_grow_into_the_rendering(self, formats, name, text):
        chat = formats[name]
        turns = [user("a"), assistant(text, call(1), call(2)), result(1, "b"), result(2, "c")]
        prompts, _, _ = grow(chat, "", [FIND], [*turns, assistant("d")])
        assert prompts[-1][1] == chat.render("", [FIND], turns)

    def test_a_grouped_result_cannot_be_appended_alone(self, formats):
        with pytest.raises(TemplateError, match="rewrites a tool message"):
            formats["qwen3"].delta("", [FIND], self.LOOP[:3], [self.LOOP[3]])


def name_of(chat):
    return next(name for name in NAMES if (DATA / "templates" / f"{name}.jinja").read_text() == chat.template.source)


class TestStops:
    def test_the_token_behind_an_assistants_text_ends_a_generation(self, formats):
        ends = {name: chat.tokenizer.decode(chat.stop_ids[:1]) for name, chat in formats.items()}
        assert ends == {
            **dict.fromkeys(("smollm2", "qwen2.5", "qwen3"), "<|im_end|>"),
            **dict.fromkeys(("llama-3.1", "llama-3.2"), "<|eot_id|>"),
            "mistral-nemo": "</s>",
        }

    def test_generation_config_adds_to_them(self, demo_model_path, tmp_path):
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (demo_model_path / name).is_file():
                (tmp_path / name).write_bytes((demo_model_path / name).read_bytes())
        (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
        chat = ChatFormat.load(tmp_path)
        assert chat.stop_ids[:2] == (chat.tokenizer.token_id("<|im_end|>"), 0)

    def test_a_token_that_opens_a_turn_ends_a_generation_and_is_not_kept(self, formats):
        chat = formats["smollm2"]
        text = chat.tokenizer.encode([Piece("One.", False)])
        end, opener = (chat.tokenizer.token_id(token) for token in ("<|im_end|>", "<|im_start|>"))
        assert opener in chat.stop_ids
        assert chat.close([*text, opener, *text]) == (text, False)
        assert chat.close([*text, end, *text]) == ([*text, end], True)
        assert chat.close(text) == (text, False)

    def test_a_template_without_an_end_is_refused(self, make_tokenizer):
        template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
        with pytest.raises(TemplateError, match="no token ends a turn"):
            ChatFormat(make_tokenizer("bytes"), template, detect(template))

    def test_reading_ends_at_the_first_stop(self, formats):
        chat = formats["qwen3"]
        ids = [*chat.generation(assistant("One.")), *chat.generation(assistant("Two."))]
        assert chat.parse(ids, TurnShape(), 1).text == "One."


def test_mistral_calls_begin_with_the_models_own_token(formats):
    chat = formats["mistral-nemo"]
    tag = json.loads(chat.dialect.constraint(TurnShape(tools=(FIND,), choice="required")))
    mark = chat.tokenizer.token_id("[TOOL_CALLS]")
    assert tag["format"]["elements"][0] == {"type": "token", "token": mark}
    assert chat.generation(assistant("", call(1)))[0] == mark


class TestAnchor:
    def test_is_what_every_conversation_begins_with(self, chat):
        anchor = chat.anchor("Be brief.", [FIND])
        for messages in ([user(" a")], [user("b"), assistant("c"), user("\n\nd")]):
            whole = chat.render("Be brief.", [FIND], messages)
            assert whole[: len(anchor)] == anchor

    def test_reaches_the_users_text_unless_the_template_moves_things(self, chat):
        anchor = chat.anchor("Be brief.", [FIND])
        whole = chat.render("Be brief.", [FIND], [user("Zebra")])
        if name_of(chat) == "mistral-nemo":
            assert chat.tokenizer.decode(anchor) == "<s>"
        else:
            assert chat.tokenizer.decode(whole[len(anchor) :]).index("Zebra") < 12
