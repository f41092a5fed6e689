"""The block pool against a plain restatement of its rules, and the keys that name blocks."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentkv.engines.sim_cache import Block, BlockPool, KeyChain
from agentkv.errors import EngineError

KEYS = [bytes([letter]) * 16 for letter in b"abcd"]


class PoolAgainstLists(RuleBasedStateMachine):
    """The pool's rules written with lists, in the most obvious way, beside the pool."""

    @initialize(size=st.integers(1, 12))
    def start(self, size: int) -> None:
        self.pool = BlockPool(size)
        self.free = list(range(size))
        self.entered: list[tuple[bytes, int]] = []
        self.users: list[list[Block]] = []
        self.evictions = 0

    @rule(data=st.data())
    def take(self, data: Any) -> None:
        count = data.draw(st.integers(0, len(self.free)))
        taken = self.pool.take(count)
        expected, self.free = self.free[:count], self.free[count:]
        assert [block.id for block in taken] == expected
        self.evictions += sum(block_id in expected for _, block_id in self.entered)
        self.entered = [(key, block_id) for key, block_id in self.entered if block_id not in expected]
        self.users.append(taken)

    @rule()
    def take_too_many(self) -> None:
        with pytest.raises(EngineError):
            self.pool.take(len(self.free) + 1)

    @precondition(lambda self: any(self.users))
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def enter(self, data: Any, key: bytes) -> None:
        block = data.draw(st.sampled_from([block for user in self.users for block in user]))
        if block.key is None:
            self.pool.enter(block, key)
            self.entered.append((key, block.id))

    @rule(key=st.sampled_from(KEYS))
    def hit(self, key: bytes) -> None:
        block = self.pool.find(key)
        expected = next((block_id for entered, block_id in self.entered if entered == key), None)
        assert (block and block.id) == expected
        if block is not None:
            self.pool.touch([block])
            self.users.append([block])
            self.free = [block_id for block_id in self.free if block_id != block.id]

    @precondition(lambda self: self.users)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        user = self.users.pop(data.draw(st.integers(0, len(self.users) - 1)))
        order = list(reversed(user))
        self.pool.release(order)
        still_used = {block.id for other in self.users for block in other}
        keyed = {block_id for _, block_id in self.entered}
        freed = [block.id for block in order if block.id not in still_used]
        front = [block_id for block_id in freed if block_id not in keyed]
        self.free = front + self.free + [block_id for block_id in freed if block_id in keyed]

    @invariant()
    def agree(self) -> None:
        self.pool.check_integrity(self.users)
        assert list(self.pool._free) == self.free
        assert self.pool.free == len(self.free)
        assert self.pool.cached == len({key for key, _ in self.entered})
        assert self.pool.evictions == self.evictions


TestPoolAgainstLists = PoolAgainstLists.TestCase


def test_the_integrity_check_sees_a_lost_reference() -> None:
    pool = BlockPool(4)
    blocks = pool.take(2)
    pool.check_integrity([blocks])
    with pytest.raises(AssertionError, match="block 1: 1 refs, 0 users"):
        pool.check_integrity([blocks[:1]])


def test_the_integrity_check_sees_a_key_that_finds_nothing() -> None:
    pool = BlockPool(4)
    blocks = pool.take(1)
    blocks[0].key = KEYS[0]
    with pytest.raises(AssertionError, match="block 0 has a key that finds nothing"):
        pool.check_integrity([blocks])


tokens = st.lists(st.integers(0, 3), min_size=4, max_size=16)


@given(first=tokens, second=tokens, salts=st.tuples(*[st.sampled_from([None, "a", "b"])] * 2))
def test_keys_are_equal_exactly_for_equal_prefixes_under_equal_salt(
    first: list[int], second: list[int], salts: tuple[str | None, str | None]
) -> None:
    chains = KeyChain(first, 2, salts[0]), KeyChain(second, 2, salts[1])
    for block in range(min(len(first), len(second)) // 2):
        end = 2 * (block + 1)
        same = first[:end] == second[:end] and salts[0] == salts[1]
        assert (chains[0][block] == chains[1][block]) == same


@pytest.mark.parametrize("token", [-1, 2**32, "7"])
def test_an_id_that_is_no_token_is_refused(token: Any) -> None:
    with pytest.raises(EngineError, match="token ids must be whole numbers"):
        KeyChain([1, token], 2, None)
