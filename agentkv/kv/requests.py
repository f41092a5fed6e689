"""The requests with a directive that are in the engine: which wait for admission, which are work ahead of need."""

from collections import defaultdict
from typing import Generic, TypeVar

from agentkv.kv.directive import Directive
from agentkv.kv.policy import KVPolicy

__all__ = ("LiveRequests",)

T = TypeVar("T")


class LiveRequests(Generic[T]):
    """Owns who is who among an engine's requests (``T`` is the engine's own kind), by request id.

    ``held``: they wait for their run's admission, outside of the engine's queue. ``in_step``: prefetches with
    tokens in the step being planned. ``doomed``: prefetches to be ended as soon as the step is planned, and why.
    """

    def __init__(self, policy: KVPolicy) -> None:
        self.directives: dict[str, Directive] = {}
        self.held: dict[str, T] = {}
        self.prefetches: dict[str, T] = {}
        self.in_step: set[str] = set()
        self.doomed: dict[str, str] = {}
        self._policy = policy
        # Held requests by ticket, with the order of their arrival; and those of these tickets that wait no more.
        self._of_ticket: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._called: list[str] = []
        self._arrivals = 0
        policy.admission.watch = self._call

    def enter(self, request_id: str, request: T, directive: Directive, now: float) -> str | None:
        """Take a request in; None, or the reason why it must be dropped at once (prefetches only), recorded."""
        if directive.kind == "prefill" and not self._policy.may_run(directive):
            reason: str | None = "the run waits for admission"
            self._policy.drop_prefetch(directive, request_id, "the run waits for admission", now)
        else:
            reason = self._policy.start(directive, request_id, now)
        if reason is not None:
            return reason
        self.directives[request_id] = directive
        if directive.kind == "prefill":
            self.prefetches[request_id] = request
        return None

    def hold(self, request_id: str, request: T) -> bool:
        """Whether the request's run waits for admission; then it is kept here until ``admitted`` returns it."""
        directive = self.directives.get(request_id)
        if directive is None or self._policy.may_run(directive):
            return False
        self.held[request_id] = request
        self._arrivals += 1
        self._of_ticket[directive.ticket or ""][request_id] = self._arrivals
        return True

    def admitted(self) -> list[T]:
        """Held requests whose run may go on now, in order of arrival; they are held no more."""
        called, self._called = self._called, []
        arrived = {name: at for ticket in called for name, at in self._of_ticket.get(ticket, {}).items()}
        ready = [name for name in arrived if self._policy.may_run(self.directives[name])]
        return [self._release(name) for name in sorted(ready, key=arrived.__getitem__)]

    def leave(self, request_id: str) -> Directive | None:
        """Forget a request that ends; returns its directive."""
        self.prefetches.pop(request_id, None)
        if request_id in self.held:
            self._release(request_id)
        return self.directives.pop(request_id, None)

    def is_prefetch(self, request_id: str) -> bool:
        """Whether the request is work ahead of need."""
        return request_id in self.prefetches

    def is_resume(self, request_id: str) -> bool:
        """Whether the request continues a chain that waited for a tool."""
        return (directive := self.directives.get(request_id)) is not None and directive.resume

    def droppable(self, for_whom: str) -> list[str]:
        """Prefetches that may be given up in the middle of planning a step, the youngest first.

        One that has tokens in this step may not: its blocks count as computed already.
        """
        return [each for each in reversed(self.prefetches) if each not in self.in_step and each != for_whom]

    def _call(self, ticket: str) -> None:
        if ticket in self._of_ticket:
            self._called.append(ticket)

    def _release(self, request_id: str) -> T:
        ticket = self.directives[request_id].ticket or ""
        del self._of_ticket[ticket][request_id]
        if not self._of_ticket[ticket]:
            del self._of_ticket[ticket]
        return self.held.pop(request_id)
