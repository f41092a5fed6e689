"""Results guessed from earlier ones."""

from hypothesis import given
from hypothesis import strategies as st

from agentkv.follow import Memo, PredictedResult
from agentkv.tools import ToolCall


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall("call_0001", name, arguments)


def test_the_same_call_in_any_spelling_is_expected_to_give_the_same() -> None:
    memo = Memo(1000)
    memo.remember(call("read", '{"a": 1, "b": [2]}').key, "text")
    assert memo.predict(call("read", '{"b":[2],"a":1}')) == PredictedResult("memo", "text")
    assert memo.predict(call("other")) is None


def test_a_polled_tool_is_expected_to_give_what_it_gave_last() -> None:
    memo = Memo(1000)
    memo.remember(call("status", '{"n":1}').key, "pending")
    memo.remember(call("status", '{"n":2}').key, "pending, still")
    assert memo.predict(call("status", '{"n":3}')) == PredictedResult("poll", "pending, still")
    assert memo.predict(call("status", '{"n":1}')) == PredictedResult("memo", "pending")


def test_a_result_larger_than_the_memo_is_not_kept_and_drives_nothing_else_out() -> None:
    memo = Memo(100)
    memo.remember(call("a").key, "x")
    memo.remember(call("b").key, "x" * 200)
    assert [key[0] for key, _ in memo.items()] == ["a"]
    memo.remember(call("a").key, "x" * 200)
    assert memo.predict(call("a")) is None
    assert (len(memo), memo.size) == (0, 0)


def test_what_was_used_last_stays_longest() -> None:
    memo = Memo(3 * (len("a{}") + 10))
    for name in "abc":
        memo.remember(call(name).key, "x" * 10)
    memo.predict(call("a"))
    memo.remember(call("d").key, "x" * 10)
    assert [key[0] for key, _ in memo.items()] == ["c", "a", "d"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.text(max_size=30), st.booleans()), max_size=60))
def test_its_size_is_what_it_holds_and_never_more_than_allowed(steps: list[tuple[str, int, str, bool]]) -> None:
    memo = Memo(120)
    for name, n, text, remembers in steps:
        key = call(name, f'{{"n":{n}}}')
        if remembers:
            memo.remember(key.key, text)
            held = memo.predict(key)
            assert held is None or held.text == text or held.source == "poll"
        else:
            memo.predict(key)
        held_bytes = sum(len("".join((*k, v)).encode("utf-8", "surrogatepass")) for k, v in memo.items())
        assert memo.size == held_bytes <= 120
        for source in filter(None, (memo.predict(call(each, '{"n":9}')) for each in "abc")):
            assert source.text in [v for _, v in memo.items()]
