"""What can be prefilled before tool results are there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .conftest import FIND, NAMES, TEXT, assistant, call, result, user


class TestKnown:
    BEFORE = (user("Where is 17?"), assistant("", call(1), call(2), call(3)))

    @given(texts=st.lists(TEXT, min_size=3, max_size=3), ready=st.integers(0, 2))
    @pytest.mark.parametrize("name", NAMES)
    def test_is_the_beginning_of_every_delta(self, formats, name, texts, ready):
        chat = formats[name]
        results = [result(i, text) for i, text in enumerate(texts, 1)]
        known = chat.known("", [FIND], self.BEFORE, [*results[:ready], *[None] * (3 - ready)])
        delta = chat.delta("", [FIND], self.BEFORE, results)
        assert delta[: len(known)] == known

    @given(text=TEXT, cut=st.integers(0, 30))
    @pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("llama")])
    def test_grows_with_a_result_that_grows(self, formats, name, text, cut):
        chat = formats[name]
        partial = chat.known("", [FIND], self.BEFORE, [None] * 3, partial=text[:cut])
        delta = chat.delta("", [FIND], self.BEFORE, [result(1, text), result(2, "b"), result(3, "c")])
        assert delta[: len(partial)] == partial

    @pytest.mark.parametrize("name", ["smollm2", "qwen3", "llama-3.1"])
    def test_holds_what_is_there(self, formats, name):
        chat = formats[name]
        none = chat.known("", [FIND], self.BEFORE, [None] * 3)
        one = chat.known("", [FIND], self.BEFORE, [result(1, "shipped today"), None, None])
        streamed = chat.known("", [FIND], self.BEFORE, [None] * 3, partial="one two three four five six")
        assert 0 < len(none) < len(one)
        assert "shipped today" in chat.tokenizer.decode(one)
        assert "one two three" in chat.tokenizer.decode(streamed)

    def test_is_everything_when_nothing_is_missing(self, chat):
        results = [result(i, "x") for i in (1, 2, 3)]
        assert chat.known("", [FIND], self.BEFORE, results) == chat.delta("", [FIND], self.BEFORE, results)
