"""Given ids through vLLM's real schedulers: steps ahead of their results, preemption, free requests beside them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from agentkv.errors import EngineStartError
from agentkv.plugin.forcing import Forcing

Make = Callable[..., Any]
IDS = [999, 31, 0, 32, 63, 2, 2, 500, 959, 1]


def prompt(seed: int, n: int) -> list[int]:
    return [(seed * 131 + i * 7) % 900 for i in range(n)]


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("stock", [True, False])
def test_forced_ids_come_out_and_a_request_beside_them_is_free(
    make_core: Make, asynchronous: bool, stock: bool
) -> None:
    core = make_core(forcing=True, stock=stock, asynchronous=asynchronous)
    # The second prompt takes several steps, so that the two are never at the same position.
    forced = [core.add(prompt(n, 20 + 90 * n), max_tokens=len(IDS), forced=IDS[n:] + IDS[:n]) for n in range(2)]
    free = core.add(prompt(9, 33), max_tokens=12)
    core.run()
    assert [core.outputs[name] for name in forced] == [IDS, IDS[1:] + IDS[:1]]
    assert core.outputs[free] == [core.token(free, n) for n in range(12)]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_preempted_request_goes_on_where_it_was(make_core: Make, asynchronous: bool) -> None:
    core = make_core(forcing=True, asynchronous=asynchronous, blocks=33)
    ids = [(7 * n) % 1000 for n in range(60)]
    names = [core.add(prompt(n, 40), max_tokens=60, forced=ids) for n in range(2)]
    core.run()
    assert core.scheduler.requests == {}
    assert [core.outputs[name] for name in names] == [ids, ids]


def test_a_step_without_forced_requests_has_no_mask(make_core: Make) -> None:
    core = make_core(forcing=True)
    core.add(prompt(1, 20), max_tokens=3)
    core.run()
    core.add(prompt(1, 200), max_tokens=2, forced=[5, 6])
    step = core.plan()
    assert core.scheduler.get_grammar_bitmask(step) is None, "a prompt in progress samples nothing"


@pytest.mark.parametrize("wrong", ["text", [1000], [-1], [1.5], [None], 7, {"a": 1}, [2**40]])
def test_ids_that_are_none_leave_their_request_free_and_no_other(make_core: Make, wrong: Any) -> None:
    core = make_core(forcing=True)
    name, other = core.add(prompt(1, 20), forced=wrong), core.add(prompt(2, 20), max_tokens=2, forced=[3, 4])
    core.run()
    assert core.outputs[name] == [core.token(name, 0)]
    assert core.outputs[other] == [3, 4]


def test_what_goes_wrong_inside_leaves_the_engine_alive(make_core: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    core = make_core(forcing=True)
    monkeypatch.setattr(core.scheduler, "_vocabulary", "a thousand")
    name = core.add(prompt(1, 20), max_tokens=2, forced=[3, 4])
    core.run()
    assert core.outputs[name] == [core.token(name, 0), core.token(name, 1)]


def test_behind_the_last_given_id_the_model_is_free(make_core: Make) -> None:
    core = make_core(forcing=True)
    name = core.add(prompt(1, 20), max_tokens=3, forced=[3])
    core.run()
    assert core.outputs[name] == [3, core.token(name, 1), core.token(name, 2)]


def test_a_mask_of_a_grammar_is_kept(make_core: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from vllm.v1.core.sched.output import GrammarOutput
    from vllm.v1.core.sched.scheduler import Scheduler

    core = make_core(forcing=True)
    bound = core.add(prompt(1, 20), name="bound")
    core.add(prompt(2, 20), forced=[40])
    row = torch.zeros((1, 32), dtype=torch.int32)
    row[0, 3] = 1 << 5
    monkeypatch.setattr(Scheduler, "get_grammar_bitmask", lambda *_: GrammarOutput([bound], row.numpy()))
    core.plan()
    assert core.masks[-1] == {"bound": 101, "q0": 40}


class _Unmasked:
    def __init__(self) -> None:
        self.vllm_config = SimpleNamespace(speculative_config=None)


class _Drafting(_Unmasked):
    def __init__(self) -> None:
        self.vllm_config = SimpleNamespace(speculative_config=object())

    def get_grammar_bitmask(self) -> None:
        """As vLLM's."""


@pytest.mark.parametrize(
    ("base", "message"), [(_Unmasked, "has no way to make a request say"), (_Drafting, "leave speculative_config out")]
)
def test_what_cannot_force_is_refused_at_start(base: type, message: str) -> None:
    with pytest.raises(EngineStartError, match=message):
        type("Odd", (Forcing, base), {})()
