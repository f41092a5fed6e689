"""What a chain that is worked by hand and its forks hold in the engine."""

from typing import TYPE_CHECKING

import anyio

from agentkv.graph.path import Path
from agentkv.runtime.anchors import AnchorKey
from agentkv.runtime.program import AgentProgram
from agentkv.runtime.services import Services
from agentkv.runtime.session import Session
from agentkv.runtime.tenure import Tenure, owner_of

if TYPE_CHECKING:
    from agentkv.runtime.agent_chain import AgentChain

__all__ = ("Family",)


class Family:
    """What a chain and its forks hold together: their place in the engine, and the anchor that they begin with."""

    def __init__(self, services: Services, session: Session, agent: AgentProgram, tenure: Tenure) -> None:
        self._services, self._session, self._agent, self._tenure = services, session, agent, tenure
        self.chains: list[AgentChain] = []
        self._sizes: dict[Path, int] = {}
        self._entering = anyio.Lock()
        self._anchor: AnchorKey | None = None
        self._admitted = False

    async def enter(self, tenure: Tenure, branch: Path, tokens: int) -> None:
        """Have a place for ``tokens`` of the chain or fork ``branch``, beside those of the others."""
        async with self._entering:
            self._sizes[branch] = max(tokens, self._sizes.get(branch, 0))
            block = self._session.engine.info.block_size
            blocks = -(-sum(self._sizes.values()) // block)
            if self._admitted:
                await self._tenure.grow(blocks)
            else:
                self._services.heartbeat.join(self._tenure)
                name = f"{owner_of(self._session.salt)}/{self._agent.digest}"
                await self._tenure.admit(blocks, name, len(self._agent.anchor) // block)
                self._admitted = True
                self._anchor = self._services.anchors.hold(
                    self._agent, self._session.salt, self._session.ledger, self._session.kv.anchor_ttl
                )
            if tenure is not self._tenure and await tenure.begin():
                self._services.heartbeat.join(tenure)

    async def leave(self, tenure: Tenure, branch: Path) -> None:
        """Give back what the chain or fork ``branch`` holds."""
        self._services.heartbeat.part(tenure)
        self._sizes.pop(branch, None)
        if tenure is self._tenure and self._anchor is not None:
            self._services.anchors.let_go(self._anchor)
            self._anchor = None
        await tenure.leave()
