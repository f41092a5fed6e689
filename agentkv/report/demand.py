"""What a recorded workload asks of an engine's KV: prompts, what they have in common, and time."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import count
from statistics import median

from attrs import frozen

from agentkv.report.early import Early

__all__ = ("Ahead", "Demand", "RecordedPrompt", "demand_of")

# A prefix shorter than this is not worth keeping for those that share it.
LEAST_TRUNK = 512


@frozen(kw_only=True)
class RecordedPrompt:
    """One prompt of a chain: its length and its answer's in tokens, and the keys of its whole blocks in order.

    A key stands for a block and all before it, so equal keys mean equal prefixes; None: what the prompts have in
    common was not recorded, but of this one ``reused`` tokens were found in a cache. ``fork``: what the chain is a
    branch of, where that was recorded. ``early``: what of it was known before it could be asked, None where that was
    not recorded. Seconds, None where not recorded: ``at`` and ``end`` of its generation, ``wait`` for its first token,
    ``tool`` that ran before it.
    """

    chain: str
    tokens: int
    output: int
    keys: Sequence[Hashable] | None = None
    reused: int | None = None
    fork: str | None = None
    early: Early | None = None
    at: float | None = None
    end: float | None = None
    wait: float | None = None
    tool: float | None = None


@frozen(kw_only=True)
class Ahead:
    """Of the ``tokens`` computed behind tools and branches the shares that were ``certain`` while these ran, and
    ``guessable`` since calls gave the same again. ``followed``: as in ``Early``, of all.
    """

    tokens: int
    certain: float
    guessable: float
    followed: bool

    @property
    def share(self) -> float:
        return self.certain + self.guessable


@frozen(kw_only=True)
class Demand:
    """A workload in figures; tokens and seconds. None: the trace does not tell.

    ``reusable``: share of the prompts' tokens that stand at the front of an earlier prompt. ``branches``: chains that
    go on from one prefix, the one whose sharing saves most, with its length in ``trunk``. ``longest``: of all chains,
    answers included. ``working_set``: the most that chains alive at one time hold together, what they share once;
    without times (``timed``), of all chains at once. ``waiting``: share of the recorded time of the chains that they
    wait for first tokens. ``ahead``: what could be prefilled ahead. ``tool``: the median time of a tool.
    """

    source: str
    chains: int
    prompts: int
    prompt_mean: float
    longest: int
    reusable: float | None
    branches: int | None
    trunk: int
    working_set: int
    timed: bool
    waiting: float | None
    ahead: Ahead | None
    tool: float | None


def demand_of(source: str, prompts: Iterable[RecordedPrompt], *, block_size: int) -> Demand:
    """Sum up at least one prompt, in the order in which they were sent; blocks of ``block_size`` tokens."""
    prompts = list(prompts)
    chains: dict[str, list[RecordedPrompt]] = {}
    for prompt in prompts:
        chains.setdefault(prompt.chain, []).append(prompt)
    branches, trunk = _branches(chains.values(), block_size)
    tools = [prompt.tool for prompt in prompts if prompt.tool is not None]
    return Demand(
        source=source,
        chains=len(chains),
        prompts=len(prompts),
        prompt_mean=sum(prompt.tokens for prompt in prompts) / len(prompts),
        longest=max(prompt.tokens + prompt.output for prompt in prompts),
        reusable=_reusable(prompts, block_size),
        branches=branches,
        trunk=trunk,
        working_set=_working_set(list(chains.values()), block_size),
        timed=_timed(chains.values()),
        waiting=_waiting(list(chains.values())),
        ahead=_ahead(prompts),
        tool=median(tools) if tools else None,
    )


def _reusable(prompts: Sequence[RecordedPrompt], block_size: int) -> float | None:
    seen: set[Hashable] = set()
    reused = 0
    for prompt in prompts:
        if prompt.keys is None:
            if prompt.reused is None:
                return None
            reused += prompt.reused
            continue
        reused += block_size * _known(prompt.keys, seen)
        seen.update(prompt.keys)
    total = sum(prompt.tokens for prompt in prompts)
    return reused / total if total else None


def _known(keys: Sequence[Hashable], seen: set[Hashable]) -> int:
    return next((place for place, key in enumerate(keys) if key not in seen), len(keys))


def _branches(chains: Collection[Sequence[RecordedPrompt]], block_size: int) -> tuple[int | None, int]:
    """Chains that share a prefix, and its length: the prefix that would otherwise be held most often in vain."""
    shared: Counter[Hashable] = Counter()
    depth: dict[Hashable, int] = {}
    for chain in chains:
        own: dict[Hashable, int] = {}
        for prompt in chain:
            if prompt.keys is None:
                return _forks(chains)
            own.update(zip(prompt.keys, count(block_size, block_size), strict=False))
        shared.update(own.keys())
        depth.update(own)
    found = ((times, depth[key]) for key, times in shared.items() if depth[key] >= LEAST_TRUNK)
    return max(found, key=lambda pair: ((pair[0] - 1) * pair[1], pair[1]), default=(1, 0))


def _forks(chains: Iterable[Sequence[RecordedPrompt]]) -> tuple[int | None, int]:
    """Branches of the widest recorded fork, and what the first prompts of all of them found in the cache."""
    forks: dict[str, list[int]] = {}
    for first, *_ in chains:
        if first.fork is not None:
            forks.setdefault(first.fork, []).append(first.reused or 0)
    widest = max(forks.values(), key=len, default=[])
    return (len(widest), min(widest)) if widest else (None, 0)


def _working_set(chains: Sequence[Sequence[RecordedPrompt]], block_size: int) -> int:
    if not _timed(chains):
        return _held(chains, block_size)
    lives = [
        (min(prompt.at or 0.0 for prompt in chain), max(prompt.end or prompt.at or 0.0 for prompt in chain), chain)
        for chain in chains
    ]
    most, alive = 0, list[tuple[float, Sequence[RecordedPrompt]]]()
    # What is alive grows at starts alone.
    for start, end, chain in sorted(lives, key=lambda life: life[:2]):
        alive = [each for each in alive if each[0] >= start] + [(end, chain)]
        most = max(most, _held([each for _, each in alive], block_size))
    return most


def _timed(chains: Iterable[Sequence[RecordedPrompt]]) -> bool:
    return all(prompt.at is not None for chain in chains for prompt in chain)


def _held(chains: Sequence[Sequence[RecordedPrompt]], block_size: int) -> int:
    """Tokens that these chains hold at their largest: blocks that several have count once."""
    shared: set[Hashable] = set()
    alone = 0
    for chain in chains:
        largest = max(chain, key=lambda prompt: prompt.tokens + prompt.output)
        keys = largest.keys or ()
        shared.update(keys)
        alone += largest.tokens + largest.output - len(keys) * block_size
    return len(shared) * block_size + alone


def _waiting(chains: Sequence[Sequence[RecordedPrompt]]) -> float | None:
    waited = lasted = 0.0
    for chain in chains:
        timed = [prompt for prompt in chain if prompt.wait is not None and prompt.end is not None]
        for prompt in timed:
            waited += prompt.wait or 0.0
            lasted += (prompt.end or 0.0) - (prompt.at or 0.0) + (prompt.tool or 0.0)
    return waited / lasted if lasted else None


def _ahead(prompts: Sequence[RecordedPrompt]) -> Ahead | None:
    found = [prompt.early for prompt in prompts if prompt.early is not None]
    if len(found) < len(prompts):
        return None
    tokens = sum(early.behind for early in found)
    return Ahead(
        tokens=tokens,
        certain=sum(early.certain for early in found) / max(1, tokens),
        guessable=sum(early.guessable for early in found) / max(1, tokens),
        followed=all(early.followed for early in found),
    )
