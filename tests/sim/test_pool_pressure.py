"""A pool of half of what all agents hold together: stock thrashes, admission and leases do not."""

import random
import statistics
from contextlib import aclosing

import anyio
from attrs import Factory, define, frozen

from agentkv.engines.base import GenerateRequest
from agentkv.engines.sim import SimEngine
from agentkv.kv import Directive, PolicySettings

BLOCK = 32


@frozen(kw_only=True)
class Shape:
    """Agents and their rounds, in tokens and seconds; tools take a lognormal time."""

    agents: int
    prompt: int = 6000
    shared: int = 2000
    rounds: int = 8
    result: int = 300
    output: int = 64
    spread: float = 12.0
    tool_median: float = 1.2
    tool_sigma: float = 0.8

    @property
    def anchor_blocks(self) -> int:
        return self.shared // BLOCK

    @property
    def blocks(self) -> int:
        """What one agent holds at its end."""
        return -(-(self.prompt + self.rounds * (self.result + self.output) + self.output) // BLOCK)

    def pool(self, ratio: float) -> int:
        return int(ratio * (self.anchor_blocks + self.agents * (self.blocks - self.anchor_blocks)))


@define
class Figures:
    """What a load took: seconds of TTFT after each tool and of whole tasks, makespan, and tokens."""

    after_tool: list[float] = Factory(list)
    tasks: list[float] = Factory(list)
    makespan: float = 0.0
    cached: int = 0
    prompt: int = 0

    def ttft(self, share: int) -> float:
        return statistics.quantiles(self.after_tool, n=100)[share - 1]


class Load:
    """One load on one engine. ``settings`` None is stock; ``cap`` is how many agents run at a time at most."""

    def __init__(self, shape: Shape, ratio: float, settings: PolicySettings | None, cap: int | None = None) -> None:
        self.shape, self.figures = shape, Figures()
        self.engine = SimEngine(
            lambda request: range(5000, 5000 + request.max_tokens),
            preset="h200",
            pool_blocks=shape.pool(ratio),
            kv=settings,
        )
        self.managed = settings is not None
        self._cap = anyio.CapacityLimiter(cap or shape.agents)

    async def run(self) -> Figures:
        async with self.engine:
            async with anyio.create_task_group() as group:
                for number in range(self.shape.agents):
                    group.start_soon(self.agent, number)
            self.engine.check_integrity()
            self.figures.makespan = self.engine.clock.now()
        return self.figures

    async def agent(self, number: int) -> None:
        dice, clock, shape = random.Random(number), self.engine.clock, self.shape
        await clock.sleep(dice.random() * shape.spread)
        begun, own = clock.now(), 1_000_000 + number * 20_000
        chain, lease = [*range(100_000, 100_000 + shape.shared), *range(own, own + shape.prompt - shape.shared)], None
        tools = [dice.lognormvariate(0.0, shape.tool_sigma) * shape.tool_median for _ in range(shape.rounds)]
        async with self._cap:
            ticket = await self.admit(number)
            for turn, tool in enumerate([*tools, 0.0]):
                asked = clock.now()
                first, lease = await self.ask(number, turn, chain, lease, ticket, tool)
                if turn:
                    self.figures.after_tool.append(first - asked)
                await clock.sleep(tool)
                new = own + shape.prompt + turn * shape.result
                chain = [*chain, *range(5000, 5000 + shape.output), *range(new, new + shape.result)]
            if ticket is not None:
                await self.engine.kv("leave", {"tickets": [ticket]})
        self.figures.tasks.append(clock.now() - begun)

    async def admit(self, number: int) -> str | None:
        if not self.managed:
            return None
        anchor = {"anchor": "shared", "anchor_blocks": self.shape.anchor_blocks}
        payload = {"run": f"{number}", "blocks": self.shape.blocks, "ttl": 3600.0, **anchor}
        ticket: str = (await self.engine.kv("admit", payload))["ticket"]
        return ticket

    async def ask(
        self, number: int, turn: int, chain: list[int], lease: str | None, ticket: str | None, tool: float
    ) -> tuple[float, str | None]:
        """Generate; when the first token came, and the chain's lease."""
        directive = Directive(
            run=f"{number}",
            ticket=ticket,
            lease=lease,
            resume=turn > 0,
            ttl=600.0,
            expected_reuse=tool,
        )
        request = GenerateRequest(
            request_id=f"{number}.{turn}", token_ids=chain, max_tokens=self.shape.output, directive=directive
        )
        async with aclosing(self.engine.generate(request)) as deltas:
            received = [delta async for delta in deltas]
        usage = received[-1].usage
        assert usage is not None
        self.figures.cached += usage.cached
        self.figures.prompt += usage.prompt
        return received[0].at, received[-1].grant.token if received[-1].grant is not None else lease


async def test_half_the_pool_costs_admitted_agents_little_and_stock_nearly_all() -> None:
    shape = Shape(agents=100)
    roomy = await Load(shape, 1.0, None).run()
    stock = await Load(shape, 0.5, None).run()
    ours = await Load(shape, 0.5, PolicySettings()).run()
    assert ours.ttft(50) < 0.04 * stock.ttft(50)
    assert ours.ttft(95) < 0.04 * stock.ttft(95)
    assert ours.makespan < 0.5 * stock.makespan
    # Every full block of a chain that is alive is a hit: as if the pool held all of them at once.
    assert (ours.cached, ours.prompt) == (roomy.cached, roomy.prompt)
    assert ours.makespan < 1.5 * roomy.makespan


async def test_admission_is_what_helps_and_leases_do_their_part_beside_it() -> None:
    shape = Shape(agents=50)
    order = await Load(shape, 0.5, PolicySettings(prefix_cache_mode="independent", admission="none")).run()
    admitted = await Load(shape, 0.5, PolicySettings(prefix_cache_mode="independent")).run()
    ours = await Load(shape, 0.5, PolicySettings()).run()
    assert admitted.ttft(50) < 0.1 * order.ttft(50)
    assert ours.prompt == admitted.prompt
    assert ours.cached > admitted.cached
    assert ours.ttft(95) < admitted.ttft(95)


async def test_leases_alone_do_not_help_where_what_is_alive_does_not_fit() -> None:
    shape = Shape(agents=50)
    stock = await Load(shape, 0.5, None).run()
    leased = await Load(shape, 0.5, PolicySettings(admission="none")).run()
    assert leased.cached < 1.5 * stock.cached
    assert leased.ttft(50) > 0.5 * stock.ttft(50)
