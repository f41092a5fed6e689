"""The scheduler's half of the second tier inside vLLM: the policy's transfers as commands to the workers."""

from typing import Any

from agentkv.kv import PolicySettings, StepTimer, Tier
from agentkv.plugin.commands import Command, Ended, TierReport
from agentkv.plugin.connector import TierConnector, slots_of
from agentkv.plugin.manager import KVManager, undrafted

__all__ = ("SchedulerPort", "open_port", "tier_slots")

#: Prompt tokens from which on a step says how fast they are computed.
TELLING_TOKENS = 128


class SchedulerPort:
    """Implements ``agentkv.plugin.connector.TierPort`` over a ``Tier``.

    ``workers`` report each command. ``ordered`` as in the protocol. ``verify``: share of blocks that are checked.
    """

    def __init__(self, kv: KVManager, tier: Tier, *, workers: int, ordered: bool, verify: float) -> None:
        self.ordered = ordered
        self._kv = kv
        self._tier = tier
        self._workers = workers
        self._threshold = int(verify * (1 << 32))
        self._ended: dict[int, Ended] = {}
        # Prompt tokens.
        self._steps: StepTimer[int] = StepTimer()

    @property
    def busy(self) -> bool:
        """See ``TierPort``."""
        return self._tier.busy

    def wanted(self, request: Any, computed: int) -> bool:
        """See ``TierPort``."""
        return bool(self._kv.guard(self._wanted, request, computed))

    def _wanted(self, request: Any, computed: int) -> bool:
        directive = self._kv.directives.get(request.request_id)
        if directive is None or self._kv.requests.is_prefetch(request.request_id):
            return False
        size = self._kv.policy.leases.block_size
        # One token at least is left to compute.
        digests = request.block_hashes[: (request.num_tokens - 1) // size]
        return self._tier.wanted(
            request.request_id,
            digests,
            computed // size,
            self._kv.now(),
            owner=directive.owner,
            lease=directive.lease,
            order=directive.order,
        )

    def commands(self) -> tuple[Command, ...]:
        """See ``TierPort``."""
        return self._kv.guard(self._commands) or ()

    def _commands(self) -> tuple[Command, ...]:
        return tuple(
            Command(
                number=each.number,
                out=each.kind == "demote",
                blocks=each.blocks,
                slots=each.slots,
                checked=tuple(place for place, digest in enumerate(each.digests) if self._is_checked(digest)),
            )
            for each in self._tier.start()
        )

    def _is_checked(self, digest: bytes) -> bool:
        """The same blocks on the way out and on the way back: by their content, which is a hash."""
        return int.from_bytes(digest[:4], "big") < self._threshold

    def reported(self, report: TierReport) -> None:
        """See ``TierPort``."""
        self._kv.guard(self._reported, report)

    def _reported(self, report: TierReport) -> None:
        for number, ended in report.ended.items():
            known = self._ended.pop(number, None)
            total = ended if known is None else known.with_other(ended)
            if total.workers < self._workers:
                self._ended[number] = total
            else:
                self._tier.done(number, total.failed, total.seconds, self._kv.now())

    # How fast prompts are computed

    def planned(self, output: Any) -> None:
        """A step goes to the workers."""
        prompt = sum(tokens for _, tokens in undrafted(output) if tokens > 1)
        self._steps.planned(output, prompt, self._kv.now())

    def answered(self, output: Any) -> None:
        """A step has come back."""
        if (found := self._steps.ended(output, self._kv.now())) is not None and found[0] >= TELLING_TOKENS:
            self._tier.cost.computed(*found)


def tier_slots(scheduler: Any, settings: PolicySettings) -> tuple[int, str]:
    """Blocks of the second tier that a scheduler of vLLM can have, and why there are none though asked for."""
    if not settings.cpu_tier_bytes or settings.prefix_cache_mode == "independent":
        return 0, ""
    if _ours(scheduler.connector) is None:
        return 0, "the engine was started without agentkv.plugin.connector.TierConnector"
    pool = scheduler.kv_cache_manager.block_pool
    for name in ("get_new_blocks", "_insert_block_hash", "cached_block_hash_to_block"):
        if not hasattr(pool, name):
            return 0, f"BlockPool.{name} is missing"
    slots = slots_of(
        settings.cpu_tier_bytes, scheduler.kv_cache_config, scheduler.vllm_config.parallel_config.world_size
    )
    return slots, "" if slots else f"cpu_tier_bytes={settings.cpu_tier_bytes} holds no block"


def open_port(scheduler: Any, kv: KVManager) -> SchedulerPort | None:
    """Put the policy's second tier behind the scheduler's connector; None where there is none."""
    tier, settings = kv.policy.tier, kv.policy.settings
    connector = _ours(scheduler.connector)
    if tier is None or connector is None:
        return None
    # With steps under way vLLM frees blocks only when the steps that may write them have ended, if it is told so.
    fenced = bool(getattr(scheduler, "defer_block_free", False))
    port = SchedulerPort(
        kv,
        tier,
        workers=scheduler.vllm_config.parallel_config.world_size,
        ordered=scheduler.scheduler_config.async_scheduling and not fenced,
        verify=settings.tier_verify,
    )
    connector.port = port
    return port


def _ours(connector: Any) -> TierConnector | None:
    """The second tier's connector, alone or among those of vLLM's ``MultiConnector``."""
    parts = getattr(connector, "_connectors", (connector,))
    return next((part for part in parts if isinstance(part, TierConnector)), None)
