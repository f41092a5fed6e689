"""What thousands who wait for admission cost: what is looked at when something happens, counted."""

from collections.abc import Callable
from typing import Any

import pytest

from agentkv.kv import Admission, Directive, KVPolicy, LiveRequests, Ticket
from agentkv.kv.allowance import Allowance

WAITING = 2000


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], list[Any]]:
    """Have the calls of a method noted."""

    def note(owner: type, name: str) -> list[Any]:
        found: list[Any] = []
        method = getattr(owner, name)

        def noting(self: Any, *given: Any, **named: Any) -> Any:
            found.append(given)
            return method(self, *given, **named)

        monkeypatch.setattr(owner, name, noting)
        return found

    return note


def test_of_a_line_only_the_front_is_looked_at_where_the_least_does_not_fit(looks: Callable[..., list[Any]]) -> None:
    line = Admission(Allowance(100, 0.75), max_bypass=4, max_queued=WAITING)
    for number in range(WAITING):
        blocks = 90 if number == 0 else 50 + number % 7
        ticket = Ticket(token=f"{number}", serial=0, run="", owner="", blocks=blocks, held=1, expires=1e6)
        assert isinstance(line.declare(ticket), Ticket)
        line.admit(0.0)
    fits = looks(Admission, "_fits")
    for held in range(2, 90):
        line.grow("0", held)
        assert line.admit(0.0) == []
    assert len(fits) == 88 * 5
    # One that fits is found, however far behind.
    line.update(f"{WAITING - 1}", 5)
    assert [ticket.token for ticket in line.admit(0.0)] == [f"{WAITING - 1}"]
    line.check_integrity()


def test_of_held_requests_only_those_are_looked_at_whose_run_was_let_in_or_ended(
    make_bench: Callable[..., Any], looks: Callable[..., list[Any]]
) -> None:
    policy: KVPolicy = make_bench(100, max_queued=WAITING).policy
    requests: LiveRequests[int] = LiveRequests(policy)
    tickets = [policy.admit(run=f"{number}", blocks=60, ttl=1e3, now=0.0) for number in range(1000)]
    for number, ticket in enumerate(tickets):
        assert isinstance(ticket, Ticket)
        directive = Directive(run=f"{number}", ticket=ticket.token)
        assert requests.enter(f"{number}/0", number, directive, 0.0) is None
        assert requests.hold(f"{number}/0", number) == (number > 0)
    may_run = looks(KVPolicy, "may_run")
    for _ in range(100):
        assert requests.admitted() == []
    assert len(may_run) == 0
    assert isinstance(tickets[0], Ticket)
    assert isinstance(tickets[5], Ticket)
    policy.leave(tickets[5].token, 1.0)
    policy.leave(tickets[0].token, 1.0)
    # The one that has ended has its requests go on, too: they are refused where they arrive.
    assert requests.admitted() == [1, 5]
    assert len(may_run) == 2
    requests.leave("7/0")
    assert sorted(requests.held.values())[:4] == [2, 3, 4, 6]
