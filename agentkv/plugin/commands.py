"""What the scheduler asks of the workers' copies, and what they answer; vLLM carries both."""

from attrs import frozen
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata

__all__ = ("Command", "Ended", "TierCommands", "TierReport")


@frozen(kw_only=True)
class Command:
    """One copy of whole blocks, by each worker for its own shard.

    ``out``: from ``blocks`` of the pool to ``slots`` of host memory, else back. ``checked`` are the places whose
    checksums are kept on the way out and compared on the way back.
    """

    number: int
    out: bool
    blocks: tuple[int, ...]
    slots: tuple[int, ...]
    checked: tuple[int, ...] = ()


@frozen(kw_only=True)
class Ended:
    """How a command ended: on how many ``workers``, the places that did ``failed`` on any, the longest time taken."""

    workers: int = 1
    failed: frozenset[int] = frozenset()
    seconds: float = 0.0

    def with_other(self, other: "Ended") -> "Ended":
        """Both together."""
        return Ended(
            workers=self.workers + other.workers,
            failed=self.failed | other.failed,
            seconds=max(self.seconds, other.seconds),
        )


class TierCommands(KVConnectorMetadata):
    """The commands that go to the workers with a step. ``ordered``: loads wait for the work queued before them."""

    def __init__(self, commands: tuple[Command, ...], *, ordered: bool) -> None:
        self.commands = commands
        self.ordered = ordered


class TierReport(KVConnectorWorkerMetadata):
    """The commands that have ended since the last report, by number."""

    def __init__(self, ended: dict[int, Ended]) -> None:
        self.ended = ended

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "TierReport":
        """The reports of several workers for one step as one."""
        assert isinstance(other, TierReport)
        merged = dict(self.ended)
        for number, ended in other.ended.items():
            merged[number] = merged[number].with_other(ended) if number in merged else ended
        return TierReport(merged)
