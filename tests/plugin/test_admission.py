from collections.abc import Callable
from typing import Any

import pytest

Make = Callable[..., Any]


def prompt(seed: int, n: int) -> list[int]:
    return [(seed * 131 + i * 7) % 900 for i in range(n)]


def admit(core: Any, run: str, blocks: int, **fields: Any) -> dict[str, Any]:
    return core.call("admit", run=run, blocks=blocks, ttl=60.0, **fields)


def test_a_run_that_does_not_fit_is_held_and_starts_when_another_leaves(make_core: Make) -> None:
    core = make_core()
    first, second = admit(core, "a", 40), admit(core, "b", 40)
    assert (first["state"], second["state"], second["position"]) == ("admitted", "queued", 1)
    held = core.add(prompt(1, 20), run="b", ticket=second["ticket"])
    core.one(prompt(2, 20), run="a", ticket=first["ticket"])
    assert held not in core.finished
    assert core.call("leave", tickets=[first["ticket"]]) == {"reasons": [None]}
    core.run()
    assert core.reports[held]["lease"] is not None


def test_one_that_holds_little_yet_starts_beside_one_that_is_about_to_end(make_core: Make) -> None:
    core = make_core()
    old = admit(core, "old", 36, held=10)
    unknown = admit(core, "unknown", 30)
    assert unknown["state"] == "queued"
    core.call("leave", tickets=[unknown["ticket"]])
    core.one(prompt(1, 120), run="old", ticket=old["ticket"], ttl=60.0)
    assert core.call("stats")["planned_blocks"] == 36
    assert admit(core, "young", 30, held=3)["state"] == "admitted"
    assert "held: must be a whole number from 0" in admit(core, "bad", 5, held=-1)["error"]


def test_an_engine_with_held_requests_only_does_not_spin_and_counts_them(make_core: Make) -> None:
    core = make_core()
    admit(core, "a", 50)
    waiting = admit(core, "b", 50)
    name = core.add(prompt(1, 20), run="b", ticket=waiting["ticket"])
    assert not core.scheduler.has_requests()
    assert core.scheduler.get_request_counts() == (0, 1)
    core.abort(name)
    core.run()
    assert (core.scheduler.get_request_counts(), core.scheduler.kv.requests.held, core.scheduler.requests) == (
        (0, 0),
        {},
        {},
    )


def test_a_held_run_can_be_cancelled_and_leaves_the_line(make_core: Make) -> None:
    core = make_core()
    admit(core, "a", 50)
    waiting = admit(core, "b", 50)
    core.call("leave", tickets=[waiting["ticket"]])
    assert core.call("stats")["runs_waiting"] == 0
    assert core.call("heartbeat", tickets=[waiting["ticket"]], ttl=9.0) == {"runs": [None]}


def test_a_child_of_an_admitted_run_never_waits(make_core: Make) -> None:
    core = make_core()
    parent = admit(core, "a", 50)
    admit(core, "b", 50)
    child = admit(core, "a/child", 50, parent=parent["ticket"])
    assert child["state"] == "admitted"
    assert core.one(prompt(1, 20), run="a/child", ticket=child["ticket"])["lease"] is not None


def test_the_youngest_is_paused_at_a_tool_boundary_and_its_next_turn_waits(make_core: Make) -> None:
    core = make_core()
    old, young = admit(core, "old", 20), admit(core, "young", 20)
    turn = core.one(prompt(1, 40), run="young", ticket=young["ticket"], ttl=60.0)
    core.call("update", ticket=old["ticket"], blocks=50)
    assert core.call("heartbeat", tickets=[young["ticket"]], ttl=60.0)["runs"][0]["state"] == "paused"
    assert core.call("stats")["leases_by_class"] == {"speculative": 1}
    resume = core.add(prompt(1, 60), run="young", ticket=young["ticket"], lease=turn["lease"], resume=True)
    ahead = core.add(prompt(1, 50), run="young", ticket=young["ticket"], kind="prefill")
    core.run()
    assert core.reports[ahead]["reason"] == "the run waits for admission"
    assert resume not in core.finished
    core.call("leave", tickets=[old["ticket"]])
    core.run()
    assert core.reports[resume]["blocks"] == 15
    assert core.cached[resume] == 40, "nothing needed the room meanwhile"
    kinds = [each["kind"] for each in core.call("events", after=0)["events"]]
    assert [kind for kind in kinds if kind.startswith("admission")] == [
        "admission.admit",
        "admission.admit",
        "admission.pause",
        "admission.leave",
        "admission.admit",
    ]


def test_without_admission_everything_starts_at_once(make_core: Make) -> None:
    core = make_core(settings={"admission": "none"})
    assert [admit(core, str(n), 60)["state"] for n in range(3)] == ["admitted"] * 3


def test_a_dead_clients_place_comes_free_on_the_next_call(make_core: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    core = make_core()
    core.call("admit", run="dead", blocks=50, ttl=5.0)
    waiting = admit(core, "b", 50)
    held = core.add(prompt(1, 20), run="b", ticket=waiting["ticket"])
    later = core.scheduler.kv.now() + 6
    monkeypatch.setattr(core.scheduler.kv, "now", lambda: later)
    core.call("stats")
    assert core.scheduler.has_requests()
    core.run()
    assert held in core.finished


def test_a_busy_engine_lets_time_pass_by_itself(make_core: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    core = make_core()
    core.call("admit", run="dead", blocks=50, ttl=5.0)
    waiting = admit(core, "b", 50)
    held = core.add(prompt(1, 20), run="b", ticket=waiting["ticket"])
    core.add(prompt(2, 20), max_tokens=50)
    core.step()
    later = core.scheduler.kv.now() + 6
    monkeypatch.setattr(core.scheduler.kv, "now", lambda: later)
    assert held in core.step().num_scheduled_tokens
