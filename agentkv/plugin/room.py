"""Room for a request that does not fit: leases give way in the one order, before anything waits or is preempted."""

from collections.abc import Callable
from typing import Any

from vllm.v1.request import RequestStatus

from agentkv.plugin.manager import KVManager

__all__ = ("RoomMaker",)

#: Further attempts after the computed deficit was met and vLLM still finds no room.
ATTEMPTS = 6


class RoomMaker:
    """Stands before vLLM's ``allocate_slots`` and makes room when that finds none.

    ``drop`` ends a running prefetch that has no tokens in the step being planned.
    """

    def __init__(self, scheduler: Any, kv: KVManager, drop: Callable[[str, str], None]) -> None:
        self._kv = kv
        self._drop = drop
        self._scheduler = scheduler
        self._manager = scheduler.kv_cache_manager
        self._pool = self._manager.block_pool
        self._stock = self._manager.allocate_slots

    def install(self) -> None:
        """Put ``allocate`` in the place of vLLM's method, on this engine's manager only, for one step."""
        self._manager.allocate_slots = self.allocate

    def remove(self) -> None:
        """Give vLLM its method back."""
        del self._manager.allocate_slots

    def allocate(self, request: Any, num_new_tokens: int, *args: Any, **kwargs: Any) -> Any:
        """VLLM's ``allocate_slots``, tried again after room was made."""
        kv = self._kv
        if kv.guard(self._must_wait, request):
            return None
        for attempt in range(ATTEMPTS + 1):
            if kv.policy.leases.classes["speculative"]:
                kv.guard(self._displace_speculative, request, num_new_tokens, args, kwargs)
            blocks = self._stock(request, num_new_tokens, *args, **kwargs)
            if blocks is not None:
                kv.guard(kv.holder.revived, _hits(args, kwargs))
            if blocks is not None or not kv.holds or attempt == ATTEMPTS:
                return blocks
            if not kv.guard(self._make_room, request, num_new_tokens, args, kwargs, attempt):
                return None
        return None

    def _must_wait(self, request: Any) -> bool:
        """Whether the room there is belongs to a resume whose KV waits to come back from host memory."""
        tier = self._kv.policy.tier
        cold = request.status == RequestStatus.WAITING and not self._kv.requests.is_resume(request.request_id)
        return tier is not None and cold and tier.claimed > 0

    def _displace_speculative(self, request: Any, new: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kv, hits = self._kv, _hits(args, kwargs)
        # What does not fit as it is asks for room, and gets it or not, as a whole.
        if self._deficit(request, new, kwargs, hits) <= 0:
            # Worthless hits leave the queue of free blocks without being handed out.
            kept = sum(block.ref_cnt == 0 and kv.holder.is_worthless(block) for block in hits)
            kv.policy.displace_speculative(
                self._need(request, new, kwargs, hits) + kept,
                request.request_id,
                kv.now(),
                worthless=kv.holder.worthless,
                protect=frozenset(block.block_id for block in hits),
            )

    def _make_room(self, request: Any, new: int, args: tuple[Any, ...], kwargs: dict[str, Any], attempt: int) -> bool:
        kv, name, hits = self._kv, request.request_id, _hits(args, kwargs)
        deficit = self._deficit(request, new, kwargs, hits)
        if deficit <= 0:
            # By our reckoning it fits, and vLLM finds that it does not.
            deficit = 1 << attempt
        prefetch = kv.requests.is_prefetch(name)
        freed = kv.policy.make_room(
            deficit,
            name,
            kv.now(),
            prefetch=prefetch,
            protect=frozenset(block.block_id for block in hits),
            drop_prefetches=lambda wanted: self._drop_prefetches(wanted, name),
            may_wait=request.status in _WAITING,
        )
        if prefetch and not freed:
            # It may displace no more, and one that waits for room would keep an idle engine stepping.
            kv.requests.doomed[name] = "no room that a prefetch may take"
        return freed > 0

    def _drop_prefetches(self, deficit: int, for_whom: str) -> int:
        before = self._pool.get_num_free_blocks()
        for victim in self._kv.requests.droppable(for_whom):
            self._drop(victim, f"room for {for_whom}")
            if self._pool.get_num_free_blocks() - before >= deficit:
                break
        return int(self._pool.get_num_free_blocks() - before)

    def _need(self, request: Any, new: int, kwargs: dict[str, Any], hits: list[Any], whole: bool = False) -> int:
        """Blocks to be taken for ``new`` tokens, or for the ``whole`` request, by vLLM's rules for one group."""
        size, longest = self._scheduler.block_size, self._scheduler.max_model_len
        computed = kwargs.get("num_new_computed_tokens", 0) + kwargs.get("num_external_computed_tokens", 0)
        tokens = request.num_computed_tokens + computed + new + kwargs.get("num_lookahead_tokens", 0)
        if whole:
            tokens = max(tokens, request.num_tokens)
        have = self._manager.get_blocks(request.request_id).blocks
        return int(-(-min(tokens, longest) // size) - len(have[0] if have else ()) - len(hits))

    def _deficit(self, request: Any, new: int, kwargs: dict[str, Any], hits: list[Any]) -> int:
        """Blocks that vLLM finds missing, by its own rules for one group of full attention."""
        need = self._need(request, new, kwargs, hits, whole=bool(kwargs.get("full_sequence_must_fit")))
        # Hits that nobody refers to are free blocks until the request takes them.
        need += sum(block.ref_cnt == 0 for block in hits) + kwargs.get("reserved_blocks", 0)
        if kwargs.get("has_scheduled_reqs", True) and request.status in _WAITING:
            need += getattr(self._manager, "watermark_blocks", 0)
        return int(need - self._pool.get_num_free_blocks())


_WAITING = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


def _hits(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The cached blocks that the request is about to take over."""
    computed = kwargs.get("new_computed_blocks", args[1] if len(args) > 1 else None)
    return list(computed.blocks[0]) if computed is not None and computed.blocks else []
