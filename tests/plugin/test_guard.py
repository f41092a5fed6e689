from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentkv.errors import EngineStartError, NotSupported
from agentkv.plugin.probe import probe

Make = Callable[..., Any]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ["v", "run", "kind", "class", "ttl", "handle", "lease", "order", "owner", "resume", "ticket"]
DIRECTIVE_LIKE = st.fixed_dictionaries(
    {"v": st.just(1) | JSON, "run": st.text(min_size=1, max_size=4) | JSON},
    optional={name: JSON | st.sampled_from(["chain", "prefill", "forged"]) for name in FIELDS[2:]},
)


def test_whatever_is_sent_as_a_directive_the_engine_lives(make_core: Make) -> None:
    core = make_core()

    @settings(max_examples=150)
    @given(JSON | st.text(max_size=60) | DIRECTIVE_LIKE)
    def send(arg: Any) -> None:
        name = core.add(list(range(9)), arg=arg)
        core.run()
        assert name in core.finished
        assert core.scheduler.kv.errors == {}

    send()
    assert core.call("stats")["records"]["reject"] > 20


@pytest.mark.parametrize("operation", ["info", "renew", "release", "verify", "admit", "update", "heartbeat", "leave"])
def test_whatever_is_called_the_engine_lives(make_core: Make, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentkv.plugin import utility

    core = make_core()

    @settings(max_examples=40)
    @given(st.dictionaries(st.sampled_from(["token", "tokens", "leases", "handle", "ttl", "run", "blocks"]), JSON))
    def call(payload: Any) -> None:
        assert isinstance(core.call(operation, **payload), dict)

    call()
    for payload in ["", "[]", "{", None, 3, "[" * 5000, "x" * (1 << 21)]:
        assert '"error"' in utility.call(core.scheduler, operation, payload) or operation == "info"
    assert "operation: must be one of" in core.call("unknown")["error"]
    # Not even what has no JSON form gets out as an exception.
    monkeypatch.setattr(utility, "_answer", lambda *_: {"answer": object()})
    assert "not JSON serializable" in utility.call(core.scheduler, operation, "{}")
    monkeypatch.undo()
    assert core.one(list(range(20)), run="r")["lease"] is not None


def test_a_rejected_directive_is_reported_back_and_the_request_runs_as_stock(make_core: Make) -> None:
    core = make_core()
    name = core.add(list(range(20)), arg='{"v":1}')
    core.run()
    assert core.reports[name] == {"v": 1, "rejected": "run: missing"}
    assert core.call("stats")["leases"] == 0


def test_an_error_of_ours_is_counted_and_vllm_goes_on(make_core: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    core = make_core()

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(core.scheduler.kv.policy.leases, "grant", broken)
    name = core.add(list(range(20)), run="r", max_tokens=3)
    core.run()
    assert len(core.outputs[name]) == 3
    assert core.call("stats")["errors"] == {"_finish": 1}
    assert [e["kind"] for e in core.call("events", after=0)["events"]] == ["error"]


def test_too_many_errors_turn_the_management_off_and_let_go_of_everything(
    make_core: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core()
    core.one(list(range(20)), run="r", ttl=60.0)
    core.call("admit", run="a", blocks=60, ttl=60.0)
    ticket = core.call("admit", run="b", blocks=60, ttl=60.0)["ticket"]
    held = core.add(list(range(30)), run="b", ticket=ticket)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(core.scheduler.kv, "settle", broken)
    core.add(list(range(50, 90)), max_tokens=60)
    core.run()
    assert core.scheduler.kv is None
    assert held in core.finished
    assert core.free == 63
    assert core.call("stats") == {"error": "leases: off: 32 errors, the last one in _before_step"}


def test_who_was_given_up_is_told_when_the_management_is_off_by_then(
    make_core: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core(settings={"branch_prefetch_limit": 0})

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    core.one(list(range(20)), run="r", ttl=60.0)
    monkeypatch.setattr(core.scheduler.kv, "settle", broken)
    core.add(list(range(50, 90)), max_tokens=60)
    for _ in range(31):
        core.step()
    core.drain()
    given_up = core.add(list(range(20)), run="r", kind="prefill")
    core.run()
    assert core.scheduler.kv is None
    assert core.reports[given_up]["reason"].startswith("branch_prefetch_limit")


@pytest.mark.parametrize("kind", ["generate", "prefill"])
def test_a_session_of_streaming_input_ends_and_leaves_nothing_behind(make_core: Make, kind: str) -> None:
    core = make_core(settings={"branch_prefetch_limit": 1})
    for name in ("first", "second"):
        core.add(list(range(9)), name=name, resumable=True, max_tokens=2, run="r", kind=kind)
        for _ in range(6):
            core.step()
        core.drain()
        # What ends a session comes under its name, with the directive of the whole, and is no more input.
        core.add([0], name=name, run="r", kind=kind)
        core.run()
        assert core.scheduler.requests == {}
    assert core.scheduler.kv.errors == {}
    assert {name: core.call("stats")[name] for name in ("live_requests", "prefetches", "leases")} == {
        "live_requests": 0,
        "prefetches": 0,
        "leases": 0,
    }


def test_a_policy_too_broken_to_be_turned_off_does_not_end_the_engine(
    make_core: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core()
    core.one(list(range(20)), run="r", ttl=60.0)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(core.scheduler.kv, "settle", broken)
    monkeypatch.setattr(core.scheduler.kv.policy.leases.table, "drop", broken)
    name = core.add(list(range(50, 90)), max_tokens=60)
    core.run()
    assert core.scheduler.kv is None
    assert len(core.outputs[name]) == 60


def test_management_with_a_second_tier_may_end_while_a_step_is_answered(
    make_core: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = make_core(tier_blocks=40)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(core.scheduler.kv.shares.cost, "ended", broken)
    name = core.add(list(range(20)), run="r", max_tokens=60)
    core.run()
    assert core.scheduler.kv is None
    assert core.scheduler.kv_off == "32 errors, the last one in ended"
    assert len(core.outputs[name]) == 60


@pytest.mark.parametrize("half", ["let_go", "hold"])
def test_a_reset_whose_blocks_cannot_be_lent_does_not_end_the_engine(
    make_core: Make, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    core = make_core(tier_blocks=40)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(core.scheduler.kv.holder, half, broken)
    assert core.scheduler.reset_prefix_cache()
    assert core.scheduler.kv.errors.total() == 1


@pytest.mark.parametrize("version", ["0.25.1", "0.33.0", "1.0", "dev"])
def test_an_untested_version_of_vllm_runs_alone_with_one_warning(
    make_core: Make, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("vllm.__version__", version)
    warnings: list[str] = []
    monkeypatch.setattr("agentkv.plugin.scheduler.logger.warning", lambda text, *args: warnings.append(text % args))
    core = make_core()
    assert core.one(list(range(20)), run="r") == {"cached": 0}
    assert [version in text and "leases: off" in text for text in warnings] == [True]
    assert core.call("info")["capabilities"]["leases"].startswith(f"off: vLLM {version}")
    with pytest.raises(EngineStartError, match="strict=False"):
        make_core(settings={"strict": True})


@pytest.mark.parametrize("version", ["0.26.0", "0.32.0", "0.32.1+cpu"])
def test_tested_versions_pass_the_probe(make_core: Make, version: str) -> None:
    assert probe(make_core().scheduler, version).problems == ()


@pytest.mark.parametrize("name", ["_connector_finished", "_enqueue_waiting_request", "_mamba_block_aligned_split"])
def test_a_missing_internal_is_named(make_core: Make, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    core = make_core()
    monkeypatch.delattr(Scheduler, name)
    assert [problem for problem in probe(core.scheduler, "0.32.0").problems if name in problem]


def test_a_changed_signature_is_named(make_core: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    core = make_core(stock=True)
    monkeypatch.setattr(KVCacheManager, "allocate_slots", lambda self, request: None)
    assert [p for p in probe(core.scheduler, "0.32.0").problems if "num_new_computed_tokens" in p]


def test_an_engine_whose_prefix_cache_is_off_runs_alone(make_core: Make) -> None:
    core = make_core(stock=True)
    core.scheduler.cache_config.enable_prefix_caching = False
    assert probe(core.scheduler, "0.32.0").problems == ("prefix caching is off",)


def test_settings_that_do_not_exist_stop_the_start(make_core: Make) -> None:
    with pytest.raises(NotSupported, match="pin_everything"):
        make_core(settings={"pin_everything": True})
    with pytest.raises(NotSupported, match="kv_pool_ratio"):
        make_core(settings={"kv_pool_ratio": 2.0})


def test_info_says_what_is_in_force(make_core: Make) -> None:
    info = make_core(settings={"admission": "none"}).call("info")
    assert (info["block_size"], info["pool_blocks"], info["epoch"]) == (4, 63, 0)
    # One layer of one head of 32 in float32, keys and values.
    assert info["kv_bytes_per_token"] == 256
    assert info["capabilities"] == {
        "leases": "on",
        "order": "on",
        "admission": "off: admission is none",
        "tier": "off: cpu_tier_bytes is 0",
    }
    assert info["settings"]["prefetch_step"] is None


def test_renewals_and_releases_answer_for_each_token(make_core: Make) -> None:
    core = make_core()
    token = core.one(list(range(20)), run="r")["lease"]
    answer = core.call("renew", leases=[{"token": token, "ttl": 9, "class": "branch"}, {"token": "x", "ttl": 9}])
    assert answer == {"reasons": [None, "lease: no such token"]}
    assert core.call("stats")["leases_by_class"] == {"branch": 1}
    assert "class" in core.call("renew", leases=[{"token": token, "ttl": 9, "class": "mine"}])["error"]
    assert "ttl" in core.call("renew", leases=[{"token": token, "ttl": -1}])["error"]
    assert core.call("release", tokens=[token, token]) == {"reasons": [None, "lease: no such token"]}
