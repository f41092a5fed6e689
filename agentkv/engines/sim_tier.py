"""Simulated copies between the pool and host memory: each direction moves bytes at the machine's bandwidth."""

from collections.abc import Callable
from math import inf

from agentkv.engines.clock import Timer, VirtualClock
from agentkv.engines.sim_machine import Machine
from agentkv.engines.sim_managed import ManagedScheduler
from agentkv.engines.sim_scheduler import Scheduler
from agentkv.kv import Tier, Transfer

__all__ = ("SimCopies", "make_copies")


class SimCopies:
    """Carries out a tier's transfers on the virtual clock; ``landed`` is called behind each.

    What has begun ends in its order, one transfer after the other, as on a stream of copies. ``bandwidth`` is in
    bytes a second, one way. What comes is known at once, while a real engine tells it with the end of a step.
    """

    def __init__(
        self, tier: Tier, clock: VirtualClock, *, block_bytes: int, bandwidth: float, landed: Callable[[], None]
    ) -> None:
        self._tier = tier
        self._clock = clock
        self._block_bytes = block_bytes
        self._bandwidth = bandwidth
        self._landed = landed
        self._free_at = {"demote": 0.0, "promote": 0.0}
        self._timers: dict[int, Timer] = {}

    def pump(self) -> None:
        """Begin what is due."""
        for transfer in self._tier.start():
            seconds = len(transfer.blocks) * self._block_bytes / self._bandwidth
            end = max(self._clock.now(), self._free_at[transfer.kind]) + seconds
            self._free_at[transfer.kind] = end
            self._timers[transfer.number] = self._clock.call_at(end, self._landing(transfer, seconds))

    def stop(self) -> None:
        """Nothing lands any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _landing(self, transfer: Transfer, seconds: float) -> Callable[[], None]:
        def land() -> None:
            del self._timers[transfer.number]
            self._tier.done(transfer.number, frozenset(), seconds, self._clock.now())
            self.pump()
            self._landed()

        return land


def make_copies(
    scheduler: Scheduler, machine: Machine, clock: VirtualClock, landed: Callable[[], None]
) -> SimCopies | None:
    """What copies for a scheduler that has a second tier, as fast as ``machine`` does; None where it has none."""
    tier = scheduler.policy.tier if isinstance(scheduler, ManagedScheduler) else None
    if tier is None:
        return None
    # What a real engine has to measure is known here.
    per_token = machine.cost.prefill_token_s
    tier.cost.prefill_rate, tier.cost.bandwidth = 1 / per_token if per_token else inf, machine.host_bandwidth
    tier.cost.latency = 2 * max(machine.cost.base_s + machine.cost.prefill_launch_s, machine.cost.prefill_host_s)
    block_bytes = machine.kv_bytes_per_token * machine.block_size
    return SimCopies(tier, clock, block_bytes=block_bytes, bandwidth=machine.host_bandwidth, landed=landed)
