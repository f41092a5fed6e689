"""The machine that the simulator pretends to be: what a step costs, and how much fits."""

from math import inf
from typing import Any, Protocol, TypedDict

from attrs import asdict, evolve, frozen

from agentkv.errors import EngineStartError

__all__ = (
    "MOST_BLOCKS",
    "Machine",
    "MachineOptions",
    "StepCost",
    "Work",
    "find_machine",
    "machine_with",
    "option_problem",
)


class Work(Protocol):
    """The sums of a step that decide its duration; see ``StepCost``."""

    @property
    def prefill_tokens(self) -> int: ...

    @property
    def prefill_context(self) -> int: ...

    @property
    def decode_seqs(self) -> int: ...

    @property
    def context_tokens(self) -> int: ...


@frozen(kw_only=True)
class StepCost:
    """A linear model of one engine step, in seconds.

    ``base_s`` is paid by every step, ``prefill_launch_s`` once by a step that computes any run of prompt
    tokens (it does not fit the captured graphs), ``prefill_token_s`` per prompt token and ``prefill_context_s``
    per pair of such a token and one that it attends to, ``decode_seq_s`` per sequence that computes a single
    token, ``context_token_s`` per token of context that those attend to.

    ``prefill_host_s`` is what the host needs to launch a step with any run of prompt tokens in it, kernel by kernel; to
    launch a captured graph takes it no time that counts. It does that while the step before runs, and hands out that
    step's tokens only then.
    """

    base_s: float
    prefill_token_s: float
    decode_seq_s: float = 0.0
    context_token_s: float = 0.0
    prefill_launch_s: float = 0.0
    prefill_context_s: float = 0.0
    prefill_host_s: float = 0.0

    def launch_seconds(self, work: Work) -> float:
        """How long the host is busy before the last of the step's kernels is on its way."""
        return self.prefill_host_s if work.prefill_tokens else 0.0

    def seconds(self, work: Work) -> float:
        """Duration of a step with this work in it, for a host that keeps ahead of it."""
        launch = self.prefill_launch_s if work.prefill_tokens else 0.0
        return (
            self.base_s
            + launch
            + work.prefill_tokens * self.prefill_token_s
            + work.prefill_context * self.prefill_context_s
            + work.decode_seqs * self.decode_seq_s
            + work.context_tokens * self.context_token_s
        )


@frozen(kw_only=True)
class Machine:
    """Cost and limits. ``max_num_batched_tokens`` is the token budget of a step.

    ``async_scheduling``: each step is planned while the one before it runs, as vLLM does on a GPU. ``delivery_s``:
    seconds from the end of a step to its tokens in the caller's hands.
    ``host_bandwidth``: bytes a second between the pool and host memory, each way.
    """

    cost: StepCost
    block_size: int
    pool_blocks: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    kv_bytes_per_token: int
    async_scheduling: bool = False
    delivery_s: float = 0.0
    host_bandwidth: float = 4e9


class MachineOptions(TypedDict, total=False):
    """What can be set on top of a preset."""

    cost: StepCost
    block_size: int
    pool_blocks: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    kv_bytes_per_token: int
    async_scheduling: bool
    delivery_s: float
    host_bandwidth: float


# Of a pool, and of a second tier: each has an entry in the simulator's books.
MOST_BLOCKS = 10_000_000

_PRESETS: dict[str, Machine] = {
    # A 135M model in bfloat16 on 2 CPU cores under vLLM: about 450 tokens/s of cold prefill, 40 ms a decode step.
    "cpu": Machine(
        cost=StepCost(base_s=0.035, decode_seq_s=0.005, prefill_token_s=1 / 450),
        block_size=32,
        pool_blocks=1456,
        max_model_len=4096,
        max_num_batched_tokens=512,
        max_num_seqs=256,
        kv_bytes_per_token=2 * 30 * 3 * 64 * 2,
        host_bandwidth=4e9,
    ),
    # An 8B model on one H200 under vLLM: a decode-only step takes 5 ms alone and 10 ms at 37 sequences; prefill takes
    # the step out of its full graph. TTFT after a tool of 100 agents comes out within 20 % of what was measured, at p50
    # and p95, with the pool at 100 % of what they hold, at 50 %, and at 50 % with at most 50 of them at a time.
    "h200": Machine(
        cost=StepCost(base_s=0.00486, decode_seq_s=0.000139, prefill_token_s=26e-6, prefill_launch_s=0.013),
        block_size=32,
        pool_blocks=21_862,
        max_model_len=32_768,
        max_num_batched_tokens=8192,
        max_num_seqs=1024,
        kv_bytes_per_token=2 * 32 * 8 * 128 * 2,
        async_scheduling=True,
        host_bandwidth=55e9,
    ),
}


def find_machine(preset: str) -> Machine:
    """The machine of that name. Raises ``EngineStartError`` for an unknown one."""
    if preset not in _PRESETS:
        known = ", ".join(sorted(_PRESETS))
        raise EngineStartError(f"the simulator has no preset {preset!r}; it has {known}, and files that end in .json")
    return _PRESETS[preset]


def machine_with(base: Machine, options: MachineOptions) -> Machine:
    """``base`` with ``options`` in place of its own values.

    Another block size keeps the pool's tokens; a smaller pool lowers ``max_model_len`` to what it holds unless
    that is given. Raises ``EngineStartError`` for a limit below 1, a step that takes no time, or a pool that cannot
    hold one request of ``max_model_len``.
    """
    given: dict[str, Any] = dict(options)
    _check(given)
    block_size = given.get("block_size", base.block_size)
    pool_blocks = given.setdefault("pool_blocks", base.pool_blocks * base.block_size // block_size)
    room = pool_blocks * block_size
    longest = given.setdefault("max_model_len", min(base.max_model_len, room))
    if longest > room:
        raise EngineStartError(
            f"max_model_len={longest} does not fit a pool of {pool_blocks} blocks of {block_size} tokens; "
            f"lower it to {room} or raise pool_blocks"
        )
    return evolve(base, **given)


def _check(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name not in MachineOptions.__annotations__:
            known = ", ".join(MachineOptions.__annotations__)
            raise EngineStartError(f"the simulator has no option {name!r}; it has {known}")
        if problem := option_problem(name, value):
            raise EngineStartError(f"{name}={value!r} {problem}")


def option_problem(name: str, value: object) -> str:
    """Why an option cannot have this value; empty if it can."""
    if name == "cost":
        return _cost_problem(value) if isinstance(value, StepCost) else "must be a StepCost"
    if name == "async_scheduling":
        return "" if isinstance(value, bool) else "must be True or False"
    if isinstance(value, bool):
        return "must be a number"
    if name == "delivery_s":
        return "" if isinstance(value, int | float) and 0 <= value < inf else "must be at least 0"
    if name == "host_bandwidth":
        return "" if isinstance(value, int | float) and value >= 1 else "must be at least 1 byte a second"
    if name == "pool_blocks" and isinstance(value, int) and value > MOST_BLOCKS:
        return f"is more than the simulator keeps books of: give at most {MOST_BLOCKS}"
    return "" if isinstance(value, int) and value >= 1 else "must be a whole number of at least 1"


def _cost_problem(cost: StepCost) -> str:
    for name, seconds in asdict(cost).items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < inf:
            return f"must have {name} of 0 seconds or more, and no {seconds!r}"
    return "" if cost.base_s > 0 else "must have base_s above 0: a step that takes no time never ends"
