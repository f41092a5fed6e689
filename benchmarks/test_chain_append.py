"""What a turn costs the chain: 200 tokens appended to 100,000. Goal: under 1 ms."""

from itertools import count

import pytest

from agentkv.chain.chain import Chain, Segment

TRUNK = 100_000
NEW = Segment(kind="tool_result", label="find_order", ids=tuple(range(200)))


@pytest.fixture(scope="module")
def trunk():
    chain = Chain.empty().extend(Segment(kind="anchor", label="agent", ids=tuple(i % 50_000 for i in range(TRUNK))))
    chain.block_keys(16)
    return chain


def test_append(benchmark, trunk):
    """Each append is behind the one before, so that the chain keeps growing in place."""
    tip = [trunk]

    def append():
        tip[0] = tip[0].extend(NEW)

    benchmark(append)
    assert len(tip[0]) > TRUNK


def test_append_and_digest(benchmark, trunk):
    tip = [trunk.extend(NEW)]

    def append():
        tip[0] = tip[0].extend(NEW)
        return tip[0].digest

    benchmark(append)


def test_fork_and_append(benchmark, trunk):
    """Every round forks the same trunk, which has grown since."""
    trunk.extend(NEW)
    fork = benchmark(trunk.extend, NEW)
    assert len(fork) == TRUNK + len(NEW.ids)


def test_append_and_block_keys(benchmark, trunk):
    """A fresh fork a round, so that each computes the keys of its 12 new blocks and lists all 6,262."""
    labels = count()

    def append():
        new = Segment(kind="tool_result", label=str(next(labels)), ids=NEW.ids)
        return trunk.extend(new).block_keys(16)

    keys = benchmark(append)
    assert len(keys) == (TRUNK + len(NEW.ids)) // 16
