"""Token ids for sessions that are known as hashes: equal where the hashes are, and different elsewhere."""

from attrs import frozen

from agentkv.bench.random_ids import random_ids
from agentkv.trace import HashRequest, HashSession

__all__ = ("BlockText",)


@frozen
class BlockText:
    """Makes up a session's ids out of ``seed``; what it gives depends on nothing else.

    A block's ids are a function of its hash. What no hash covers, the end of a prompt and the answer, is what the
    next prompt has in its place if that goes on from it, and else like nothing else.
    """

    seed: int
    session: HashSession

    def prompt(self, number: int) -> list[int]:
        """The ids of the prompt of request ``number``."""
        request = self.session.requests[number]
        ids = [i for each in request.hashes for i in self._block(each)][: request.prompt]
        return [*ids, *self._tail(number, request.prompt - len(ids))]

    def answer(self, number: int) -> tuple[int, ...]:
        """What the model is made to say to request ``number``: what the next prompt holds behind this one."""
        request = self.session.requests[number]
        said: list[int] = []
        if self._continued(number):
            said = self.prompt(number + 1)[request.prompt : request.prompt + request.output]
        return (*said, *self._own(number, "answer", request.output)[len(said) :])

    def _tail(self, number: int, count: int) -> tuple[int, ...]:
        """The ``count`` tokens of the prompt behind its last whole block."""
        at = number
        while count and self._continued(at):
            at += 1
            whole = len(self.session.requests[number].hashes)
            following = self.session.requests[at].hashes
            if len(following) > whole:
                return self._block(following[whole])[:count]
        return self._own(at, "tail", self.session.block_size)[:count] if count else ()

    def _continued(self, number: int) -> bool:
        """Whether the next prompt begins with all of this one, as far as hashes tell."""
        requests = self.session.requests
        return number + 1 < len(requests) and _goes_on(requests[number], requests[number + 1], self.session.block_size)

    def _block(self, name: int) -> tuple[int, ...]:
        return random_ids(f"{self.seed}/{self.session.scope}/block/{name}", self.session.block_size)

    def _own(self, number: int, what: str, count: int) -> tuple[int, ...]:
        return random_ids(f"{self.seed}/{self.session.id}/{number}/{what}", count)


def _goes_on(one: HashRequest, other: HashRequest, block: int) -> bool:
    whole = one.prompt // block
    return other.prompt > one.prompt and one.hashes[:whole] == other.hashes[:whole]
