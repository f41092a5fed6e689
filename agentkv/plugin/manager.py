"""Everything the scheduler knows beyond vLLM: the policy, each request's directive, and what went wrong."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_utils import get_block_hash
from vllm.v1.engine import EngineCoreOutput, FinishReason

from agentkv.kv import Directive, KVPolicy, LiveRequests, Rejected
from agentkv.plugin.holder import PoolHolder

__all__ = ("EXTRA_ARG", "KVManager", "undrafted")

logger = init_logger("agentkv.plugin")
T = TypeVar("T")

#: Key of the directive in ``SamplingParams.extra_args``, and of the report in ``RequestOutput.kv_transfer_params``.
EXTRA_ARG = "agentkv"
SETTLE_SECONDS = 0.05
MAX_ERRORS = 32


class KVManager:
    """Owns the policy inside an engine process. Nothing that a client sends makes it raise into vLLM.

    ``off`` is called with the reason when too many of its own errors have been caught: the scheduler goes on
    as vLLM's. ``fcfs``: whether vLLM schedules first come, first served. ``chunked``: whether it may compute prompts in
    pieces. ``tier_off``: why a second tier that was asked for is not there.
    """

    def __init__(
        self, policy: KVPolicy, holder: PoolHolder, off: Callable[[str], None], *, fcfs: bool, chunked: bool = True
    ) -> None:
        self.policy = policy
        self.holder = holder
        self.fcfs = fcfs
        self.chunked = chunked
        self.requests: LiveRequests[Any] = LiveRequests(policy)
        self.shares = policy.shares
        self.directives = self.requests.directives
        self.rejected: dict[str, str] = {}
        self.dropped: list[tuple[int, EngineCoreOutput]] = []
        self.errors: Counter[str] = Counter()
        self.tier_off = ""
        self._table = policy.leases.table
        self._off = off
        self._next_settle = 0.0

    @property
    def busy(self) -> bool:
        """Whether there is anything beyond stock vLLM's work to look after in a step."""
        return bool(self.directives or self.requests.held or self.dropped or self._table or self._moving)

    @property
    def _moving(self) -> bool:
        return self.policy.tier is not None and self.policy.tier.busy

    @property
    def holds(self) -> bool:
        """Whether something could give way to a request that does not fit."""
        return bool(self._table or self.requests.prefetches)

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
                self._give_up(f"{MAX_ERRORS} errors, the last one in {name}")
            return None

    def _give_up(self, reason: str) -> None:
        try:
            self._off(reason)
        except Exception:  # the books that made the errors may be too broken to be closed
            logger.exception("agentkv: not everything that was held could be let go of")

    # Requests

    def register(self, request: Any) -> bool:
        """Read the request's directive; True if the request is dropped at once and must not be queued."""
        params = request.sampling_params
        if params is None or not params.extra_args or EXTRA_ARG not in params.extra_args:
            return False
        request_id, now = request.request_id, self.now()
        if request.resumable:
            self.rejected[request_id] = self.policy.leases.reject("resumable requests take no directive", now)
            return False
        directive = Directive.from_wire(params.extra_args[EXTRA_ARG])
        if isinstance(directive, Rejected):
            self.rejected[request_id] = self.policy.leases.reject(directive.reason, now)
            return False
        reason: str | None = "prefetches need the fcfs scheduling policy"
        if directive.kind == "prefill" and not self.fcfs:
            # Preempting what is scheduled already leaves hashes of KV that is never computed (vLLM #57580).
            self.policy.drop_prefetch(directive, request_id, str(reason), now)
        elif directive.kind == "prefill" and self._is_away(request):
            reason = "its chain is in host memory"
            self.policy.drop_prefetch(directive, request_id, reason, now)
        else:
            reason = self.requests.enter(request_id, request, directive, now)
        if reason is not None:
            self.answer_dropped(request, reason)
        return reason is not None

    def _is_away(self, request: Any) -> bool:
        return self.policy.tier is not None and self.policy.tier.away(request.block_hashes)

    def hold(self, request: Any) -> bool:
        """Whether the request's run waits for admission; then it is kept back until that."""
        return self.requests.hold(request.request_id, request)

    def finish(self, request: Any, blocks: Iterable[Any], *, aborted: bool) -> dict[str, Any] | None:
        """Settle the account of a request that ends while it still has its blocks; returns the client's report."""
        request_id = request.request_id
        if (reason := self.rejected.pop(request_id, None)) is not None:
            return {"v": 1, "rejected": reason}
        directive = self.requests.leave(request_id)
        if directive is None:
            return None
        self.policy.work.ended(
            request_id, prompt=request.num_prompt_tokens, computed=request.num_computed_tokens, answered=not aborted
        )
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

    def planned(self, step: Any) -> None:
        """Take note of the requests that start in ``step``, and of what they found cached."""
        work = self.policy.work
        if self.directives:
            self.shares.planned(step, undrafted(step), self.now())
        for new in step.scheduled_new_reqs:
            if new.req_id in self.directives:
                work.started(new.req_id, new.num_computed_tokens)
        if work.awaits_restart:
            again = step.scheduled_cached_reqs
            for name, hit in zip(again.req_ids, again.num_computed_tokens, strict=True):
                if name in again.resumed_req_ids and name in self.directives:
                    work.started(name, hit)

    def ended(self, step: Any) -> None:
        """Take note of how long ``step`` took."""
        self.shares.ended(step, self.now())

    # Shares of a step

    def open_shares(self, waiting: Sequence[str], running: Sequence[Any], step_tokens: int) -> None:
        """Divide the next step: ``waiting`` are in line, prefetches apart, ``running`` all in the batch."""
        begun = [request for request in running if not self.requests.is_prefetch(request.request_id)]
        prefilling = [request.request_id for request in begun if request.is_prefill_chunk]
        self.shares.open(
            waiting=waiting,
            prefilling=prefilling,
            decoding=len(begun) - len(prefilling),
            is_resume=self.requests.is_resume,
            step_tokens=step_tokens,
            now=self.now(),
        )

    def cap(self, request: Any, num_new_tokens: int) -> int:
        """Tokens that the request may compute in this step: prefetches and cold prompts have shares."""
        name = request.request_id
        if self.requests.is_prefetch(name):
            given = self.shares.prefetch(num_new_tokens)
            if given:
                self.requests.in_step.add(name)
            return given if self.chunked or not given else num_new_tokens
        # Of one that decodes, a single token is asked for, and its drafts; a preempted one starts anew.
        prompt = num_new_tokens - len(request.spec_token_ids) > 1
        cold = prompt and self.chunked and not self.requests.is_resume(name)
        return self.shares.cold(num_new_tokens) if cold else num_new_tokens

    def answer_dropped(self, request: Any, reason: str) -> None:
        """Tell the client, with the next step's outputs, that its prefetch was given up."""
        output = EngineCoreOutput(
            request_id=request.request_id,
            new_token_ids=[],
            finish_reason=FinishReason.ABORT,
            kv_transfer_params={EXTRA_ARG: {"v": 1, "lease": None, "reason": reason}},
        )
        self.dropped.append((request.client_index, output))

    # Time

    def settle(self, *, at_once: bool = False) -> None:
        """Let time pass in the policy, at most every ``SETTLE_SECONDS`` unless asked ``at_once``."""
        now = self.now()
        if at_once or now >= self._next_settle:
            self._next_settle = now + SETTLE_SECONDS
            self.policy.settle(now)

    def settle_tier(self) -> None:
        """Begin what the second tier wants to have moved by now."""
        if self.policy.tier is not None:
            self.policy.tier.tick(self.now())

    def reset(self, empty: Callable[[], T]) -> T:
        """Forget leases and copies, then have vLLM ``empty`` its prefix cache, whatever is being loaded."""
        self.guard(self.policy.reset, self.now())
        lent, tier = ExitStack(), self.policy.tier
        if tier is not None:
            self.guard(lent.enter_context, tier.mover.emptying())
        try:
            return empty()
        finally:
            self.guard(lent.close)

    def process_stats(self) -> dict[str, Any]:
        """What this process counts beside the policy, as a JSON object."""
        return {
            "held_requests": len(self.requests.held),
            "live_requests": len(self.directives),
            "pool_blocks": self.holder.pool_blocks,
            "free_blocks": self.holder.free_blocks,
            "errors": dict(self.errors),
        }

    def unleased_blocks(self) -> dict[str, int]:
        """Blocks that no lease holds: those of running requests, those that can still be hit, those free of use."""
        pool, free = self.holder.pool_blocks, self.holder.free_blocks
        worthless = self.holder.worthless(pool)
        return {"running": pool - free - self._table.held, "cached": free - worthless, "free": worthless}


def undrafted(step: Any) -> Iterator[tuple[str, int]]:
    """Requests and the tokens that a step computes for each, less those of drafts: one for a sequence that decodes."""
    drafts = step.scheduled_spec_decode_tokens
    return ((name, tokens - len(drafts.get(name, ()))) for name, tokens in step.num_scheduled_tokens.items())


def _full_cached(blocks: Iterable[Any], request: Any, block_size: int) -> list[Any]:
    """The request's first blocks that are computed and in the prefix cache."""
    computed = (request.num_computed_tokens - request.num_output_placeholders) // block_size
    full = []
    for block in list(blocks)[: max(0, computed)]:
        if block.block_hash is None or block.is_null:
            break
        full.append(block)
    return full
