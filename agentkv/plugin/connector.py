"""vLLM's connector for the second tier: carries commands to the workers and their reports back.

Both halves are made by vLLM. The scheduler's half does nothing until ``AgentScheduler`` has put its ``port`` behind it;
the workers' half keeps the host memory and copies. Copies are blocks between pool and host memory; a copy within the
pool, with keys turned to new positions, would be one more kind of command.
"""

from typing import Any, Protocol

from typing_extensions import override
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.logger import init_logger

from agentkv.errors import EngineStartError, NotSupported
from agentkv.plugin.commands import Command, TierCommands, TierReport
from agentkv.plugin.host import HostMemory
from agentkv.plugin.regions import regions
from agentkv.plugin.settings import settings_of
from agentkv.plugin.start_report import reporting

__all__ = ("TierConnector", "TierPort", "slots_of")

logger = init_logger("agentkv.plugin")


class TierPort(Protocol):
    """The scheduler's side of the connector, as the connector asks it. Nothing here raises."""

    @property
    def busy(self) -> bool:
        """Whether copies wait or are under way, so that an idle engine must step."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether loads must wait for the work queued before them."""
        ...

    def wanted(self, request: Any, computed: int) -> bool:
        """Whether a request that finds ``computed`` tokens in the pool is to wait for more from host memory."""
        ...

    def commands(self) -> tuple[Command, ...]:
        """The copies to begin with this step."""
        ...

    def reported(self, report: TierReport) -> None:
        """Copies have ended."""
        ...


class TierConnector(KVConnectorBase_V1, SupportsHMA):
    """See the module. vLLM makes one in the scheduler's process and one in each worker."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.port: TierPort | None = None
        self._config, self._cache = vllm_config, kv_cache_config
        self._host: HostMemory | None = None

    # The scheduler's half

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Nothing is loaded for a request by vLLM; None has it wait until its blocks are in the pool's cache."""
        if self.port is None or request.skip_reading_prefix_cache:
            return 0, False
        return (None if self.port.wanted(request, num_computed_tokens) else 0), False

    @override
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing to do: vLLM allocates nothing for this connector."""

    @override
    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """What goes to the workers with a step."""
        if self.port is None:
            return TierCommands((), ordered=True)
        return TierCommands(self.port.commands(), ordered=self.port.ordered)

    def update_connector_output(self, connector_output: Any) -> None:
        """What came from the workers with a step."""
        report = connector_output.kv_connector_worker_meta
        if self.port is not None and isinstance(report, TierReport):
            self.port.reported(report)

    @override
    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Blocks are free at once: leases keep what is wanted."""
        return False, None

    @override
    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """As ``request_finished``."""
        return False, None

    def has_pending_push_work(self) -> bool:
        """Whether the engine is to step although it has no requests."""
        return self.port is not None and self.port.busy

    def reset_cache(self) -> bool | None:
        """The pool's reset, which the scheduler sees, forgets host memory too."""
        return True

    # The workers' half

    @reporting()
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Reserve host memory for this worker's share of each block. Raises ``EngineStartError``, ``NotSupported``."""
        tier_bytes = settings_of(self._config).cpu_tier_bytes
        _check_even(self._config, self._cache)
        rows = regions(kv_caches.values(), self._cache.num_blocks)
        slots = slots_of(tier_bytes, self._cache, self._config.parallel_config.world_size)
        try:
            self._host = HostMemory(rows, slots)
        except (MemoryError, OSError, RuntimeError) as error:
            raise EngineStartError(
                f"cpu_tier_bytes={tier_bytes}: this machine does not give that much memory ({error}); lower it"
            ) from error
        if (expected := _block_bytes(self._cache)) != self._host.bytes_per_block:
            raise EngineStartError(
                f"the KV cache takes {self._host.bytes_per_block} bytes a block where its specification says "
                f"{expected}: cpu_tier_bytes must be 0 for this model"
            )
        logger.info("agentkv: second tier of %d blocks, %.2f GiB", slots, slots * expected / (1 << 30))

    @override
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Begin the copies that came with the step."""
        metadata = self._get_connector_metadata()
        if self._host is not None and isinstance(metadata, TierCommands) and metadata.commands:
            self._host.submit(metadata.commands, ordered=metadata.ordered)

    @override
    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded within a step."""

    @override
    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Nothing is stored within a step."""

    def wait_for_save(self) -> None:
        """Stores end in their own time."""

    def build_connector_worker_meta(self) -> TierReport | None:
        """The copies that have ended."""
        ended = self._host.poll() if self._host is not None else {}
        return TierReport(ended) if ended else None


def slots_of(tier_bytes: int, cache_config: Any, workers: int) -> int:
    """Blocks that ``tier_bytes`` of host memory hold, every worker with its share of each."""
    return int(tier_bytes // (_block_bytes(cache_config) * workers))


def _check_even(vllm_config: Any, cache_config: Any) -> None:
    """Raise ``NotSupported`` where workers have unlike shares of a block: each would have its own number of slots."""
    stages = vllm_config.parallel_config.pipeline_parallel_size
    layers = getattr(vllm_config.model_config.hf_text_config, "num_hidden_layers", 0)
    if stages > 1 and layers != stages * len(cache_config.kv_cache_groups[0].layer_names):
        raise NotSupported(
            f"pipeline_parallel_size={stages} deals the model's {layers} layers out unevenly, and the second tier "
            "needs as many on each device: choose another size, or set cpu_tier_bytes to 0"
        )


def _block_bytes(cache_config: Any) -> int:
    """What a block takes on one worker."""
    group = cache_config.kv_cache_groups[0]
    return int(len(group.layer_names) * group.kv_cache_spec.page_size_bytes)
