"""Everything the scheduler knows beyond vLLM: the policy, each request's directive, and what went wrong."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_utils import get_block_hash
from vllm.v1.engine import EngineCoreOutput, FinishReason

from agentkv.kv import Directive, KVPolicy, Rejected
from agentkv.plugin.holder import PoolHolder

__all__ = ("EXTRA_ARG", "KVManager")

logger = init_logger("agentkv.plugin")
T = TypeVar("T")

#: Key of the directive in ``SamplingParams.extra_args``, and of the report in ``RequestOutput.kv_transfer_params``.
EXTRA_ARG = "agentkv"
SETTLE_SECONDS = 0.05
MAX_ERRORS = 32


class KVManager:
    """Owns the policy inside an engine process. Nothing that a client sends makes it raise into vLLM.

    ``off`` is called with the reason when too many of its own errors have been caught: the scheduler goes on
    as vLLM's. ``fcfs``: whether vLLM schedules first come, first served.
    """

    def __init__(self, policy: KVPolicy, holder: PoolHolder, off: Callable[[str], None], *, fcfs: bool) -> None:
        self.policy = policy
        self.holder = holder
        self.fcfs = fcfs
        self.directives: dict[str, Directive] = {}
        self.rejected: dict[str, str] = {}
        self.held: dict[str, Any] = {}
        self.prefetches: dict[str, Any] = {}
        self.doomed: dict[str, str] = {}
        self.dropped: list[tuple[int, EngineCoreOutput]] = []
        self.errors: Counter[str] = Counter()
        self.step_budget = 0
        self.cold_budget: int | None = None
        self._table = policy.leases.table
        self.in_step: set[str] = set()
        self._off = off
        self._next_settle = 0.0

    @property
    def busy(self) -> bool:
        """Whether there is anything beyond stock vLLM's work to look after in a step."""
        return bool(self.directives or self.held or self.dropped or self._table)

    @property
    def holds(self) -> bool:
        """Whether something could give way to a request that does not fit."""
        return bool(self._table or self.prefetches)

    @staticmethod
    def now() -> float:
        """Engine seconds."""
        return time.monotonic()

    def guard(self, operation: Callable[..., T], *args: Any) -> T | None:
        """Run one of our own operations; an exception is counted and None returned, and vLLM never sees it."""
        try:
            return operation(*args)
        except Exception as error:  # an exception in a scheduler's method ends the engine for all its clients
            name = getattr(operation, "__name__", "operation")
            if not self.errors[name]:
                logger.exception("agentkv: %s failed; vLLM goes on without it", name)
            self.errors[name] += 1
            self.policy.records.add("error", self.now(), reason=f"{name}: {type(error).__name__}: {error}"[:200])
            if self.errors.total() == MAX_ERRORS:
                self._off(f"{MAX_ERRORS} errors, the last one in {name}")
            return None

    # Requests

    def register(self, request: Any) -> bool:
        """Read the request's directive; True if the request is dropped at once and must not be queued."""
        params = request.sampling_params
        if params is None or not params.extra_args or EXTRA_ARG not in params.extra_args:
            return False
        request_id, now = request.request_id, self.now()
        if request.resumable or request_id in self.directives:
            self.rejected[request_id] = self.policy.leases.reject("resumable requests take no directive", now)
            return False
        directive = Directive.from_wire(params.extra_args[EXTRA_ARG])
        if isinstance(directive, Rejected):
            self.rejected[request_id] = self.policy.leases.reject(directive.reason, now)
            return False
        reason = self._refuse_prefetch(directive)
        if reason is not None:
            self.policy.drop_prefetch(directive, request_id, reason, now)
        else:
            reason = self.policy.start(directive, request_id, now)
        if reason is not None:
            self.answer_dropped(request, reason)
            return True
        self.directives[request_id] = directive
        if directive.kind == "prefill":
            self.prefetches[request_id] = request
        return False

    def _refuse_prefetch(self, directive: Directive) -> str | None:
        if directive.kind != "prefill":
            return None
        if not self.fcfs:
            # Preempting what is scheduled already leaves hashes of KV that is never computed (vLLM #57580).
            return "prefetches need the fcfs scheduling policy"
        return None if self.policy.may_run(directive) else "the run waits for admission"

    def hold(self, request: Any) -> bool:
        """Whether the request's run waits for admission; then it is kept here until ``admitted`` returns it."""
        directive = self.directives.get(request.request_id)
        if directive is None or self.policy.may_run(directive):
            return False
        self.held[request.request_id] = request
        return True

    def admitted(self) -> list[Any]:
        """Held requests whose run may go on now, in order of arrival; they are held no more."""
        ready = [name for name in self.held if self.policy.may_run(self.directives[name])]
        return [self.held.pop(name) for name in ready]

    def finish(self, request: Any, blocks: Iterable[Any], *, aborted: bool) -> dict[str, Any] | None:
        """Settle the account of a request that ends while it still has its blocks; returns the client's report."""
        request_id = request.request_id
        if (reason := self.rejected.pop(request_id, None)) is not None:
            return {"v": 1, "rejected": reason}
        directive = self.directives.pop(request_id, None)
        if directive is None:
            return None
        self.prefetches.pop(request_id, None)
        self.held.pop(request_id, None)
        if aborted:
            self.policy.abort(directive, request_id, self.now())
            return {"v": 1, "lease": None, "reason": "aborted"}
        full = _full_cached(blocks, request, self.policy.leases.block_size)
        ids = [block.block_id for block in full]
        digests = [get_block_hash(block.block_hash) for block in full]
        grant = self.policy.finish(directive, request_id, ids, digests, self.now())
        return {
            "v": 1,
            "lease": grant.token,
            "handle": grant.handle.as_wire() if grant.handle else None,
            "blocks": grant.blocks,
            "offered": grant.offered,
            "reason": grant.reason,
        }

    # Prefetches

    def is_prefetch(self, request_id: str) -> bool:
        """Whether the request is work ahead of need."""
        return request_id in self.prefetches

    def is_resume(self, request_id: str) -> bool:
        """Whether the request continues a chain that waited for a tool."""
        return (directive := self.directives.get(request_id)) is not None and directive.resume

    def cap(self, request: Any, num_new_tokens: int) -> int:
        """Tokens that the request may compute in this step: prefetches and cold prompts in progress have shares."""
        if request.request_id not in self.prefetches:
            return self._cap_cold(request, num_new_tokens)
        given = min(num_new_tokens, self.step_budget)
        self.step_budget -= given
        if given:
            self.in_step.add(request.request_id)
        return given

    def _cap_cold(self, request: Any, num_new_tokens: int) -> int:
        if self.cold_budget is None or not request.is_prefill_chunk or self.is_resume(request.request_id):
            return num_new_tokens
        given = min(num_new_tokens, self.cold_budget)
        self.cold_budget -= given
        return given

    def droppable(self, for_whom: str) -> list[str]:
        """Prefetches that may be given up in the middle of planning a step, the youngest first.

        One that has tokens in this step may not: its blocks count as computed already.
        """
        return [each for each in reversed(self.prefetches) if each not in self.in_step and each != for_whom]

    def answer_dropped(self, request: Any, reason: str) -> None:
        """Tell the client, with the next step's outputs, that its prefetch was given up."""
        output = EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=[],
            finish_reason=FinishReason.ABORT,
            kv_transfer_params={EXTRA_ARG: {"v": 1, "lease": None, "reason": reason}},
        )
        self.dropped.append((request.client_index, output))

    # Room and time

    def make_room(
        self,
        deficit: int,
        request: Any,
        protect: frozenset[int],
        *,
        only_speculative: bool = False,
        partly: bool = False,
    ) -> int:
        """Have leases give way to the request; returns the blocks really freed."""
        return self.policy.leases.make_room(
            deficit,
            self.now(),
            for_whom=request.request_id,
            protect=protect,
            only_speculative=only_speculative,
            partly=partly,
        )

    def settle(self, *, at_once: bool = False) -> None:
        """Let time pass in the policy, at most every ``SETTLE_SECONDS`` unless asked ``at_once``."""
        now = self.now()
        if at_once or now >= self._next_settle:
            self._next_settle = now + SETTLE_SECONDS
            self.policy.settle(now)

    def process_stats(self) -> dict[str, Any]:
        """What this process counts beside the policy, as a JSON object."""
        return {
            "held_requests": len(self.held),
            "live_requests": len(self.directives),
            "errors": dict(self.errors),
        }


def _full_cached(blocks: Iterable[Any], request: Any, block_size: int) -> list[Any]:
    """The request's first blocks that are computed and in the prefix cache."""
    computed = (request.num_computed_tokens - request.num_output_placeholders) // block_size
    full = []
    for block in list(blocks)[: max(0, computed)]:
        if block.block_hash is None or block.is_null:
            break
        full.append(block)
    return full
