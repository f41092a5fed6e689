"""A chain extends in place, forks for free and says what it holds."""

import hashlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentkv.chain.chain import Chain, Segment
from agentkv.errors import AgentKVError

ids = st.lists(st.integers(0, 2**32 - 1), max_size=40)


def segment(tokens, kind="user", label="x"):
    return Segment(kind=kind, label=label, ids=tuple(tokens))


def chain_of(*runs):
    chain = Chain.empty()
    for run in runs:
        chain = chain.extend(segment(run))
    return chain


class Watched(array):
    """Ids that count how many of them are read."""

    read = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Watched.read += len(found) if isinstance(key, slice) else 1
        return found

    def __iter__(self):
        Watched.read += len(self)
        return super().__iter__()

    def tobytes(self):
        raise AssertionError("the whole buffer is read")

    tolist = __reversed__ = __copy__ = __deepcopy__ = tobytes


@pytest.fixture
def long_chain():
    """100,000 tokens whose reading is counted from here on."""
    chain = chain_of(range(100_000))
    chain.block_keys(16)
    chain._buffer.ids = Watched("I", chain._buffer.ids)
    Watched.read = 0
    return chain


def test_an_empty_chain():
    chain = Chain.empty()
    assert (len(chain), chain.ids(), chain.segments, chain.block_keys(16)) == (0, [], (), [])


def test_extending_leaves_the_shorter_chain_as_it_was():
    short = chain_of([1, 2])
    digest = short.digest
    long = short.extend(segment([3]))
    assert (short.ids(), short.digest, len(short.segments)) == ([1, 2], digest, 1)
    assert (long.ids(), len(long), len(long.segments)) == ([1, 2, 3], 3, 2)


def test_segments_keep_their_names_in_order():
    first, second = segment([1], "anchor", "a"), segment([], "template", "")
    chain = Chain.empty().extend(first).extend(second)
    assert chain.segments == (first, second)
    assert chain.extend(segment([5])).segments[:2] == (first, second)


def test_ids_are_a_fresh_list():
    chain = chain_of([1, 2])
    chain.ids().append(3)
    chain.block_keys(1).clear()
    assert chain.ids() == [1, 2]
    assert len(chain.block_keys(1)) == 2


def test_forks_do_not_see_each_other():
    trunk = chain_of([1, 2, 3])
    left, right = trunk.extend(segment([4])), trunk.extend(segment([5, 6]))
    again = trunk.extend(segment([]))
    assert left.extend(segment([7])).ids() == [1, 2, 3, 4, 7]
    assert right.extend(segment([8])).ids() == [1, 2, 3, 5, 6, 8]
    assert again.extend(segment([9])).ids() == [1, 2, 3, 9]


def test_a_fork_before_an_empty_segment_does_not_inherit_it():
    trunk = chain_of([1])
    assert len(trunk.extend(segment([])).segments) == 2
    assert len(trunk.extend(segment([2])).segments) == 2


def test_appending_reads_none_of_the_tokens_before(long_chain):
    chain = long_chain.extend(segment(range(200)))
    assert len(chain.digest) == 32
    assert Watched.read == 0
    assert chain._buffer is long_chain._buffer


def test_new_block_keys_read_only_the_new_blocks(long_chain):
    chain = long_chain.extend(segment(range(200)))
    assert len(chain.block_keys(16)) == 100_200 // 16
    assert Watched.read <= 200 + 16
    Watched.read = 0
    chain.block_keys(16)
    assert Watched.read == 0


def test_a_fork_copies_nothing_of_its_trunk(long_chain):
    long_chain.extend(segment([1]))
    fork = long_chain.extend(segment(range(200)))
    assert len(fork._buffer.ids) == 200
    assert Watched.read == 0
    fork.block_keys(16)
    assert Watched.read < 16


def test_a_fork_inside_a_block_reads_only_that_block_of_the_trunk(long_chain):
    trunk = long_chain.extend(segment(range(7)))
    trunk.extend(segment([1]))
    Watched.read = 0
    fork = trunk.extend(segment(range(300, 320)))
    keys = fork.block_keys(16)
    assert Watched.read <= 16
    assert keys == chain_of(fork.ids()).block_keys(16)


@given(st.lists(st.tuples(st.integers(0, 10), ids), max_size=12), st.sampled_from([1, 4, 16]))
def test_any_tree_of_forks_equals_chains_built_alone(steps, block_size):
    tree, plain = [Chain.empty()], [[]]
    for parent, new in steps:
        at = parent % len(tree)
        tree.append(tree[at].extend(segment(new)))
        plain.append(plain[at] + new)
        if parent % 2:
            tree[-1].block_keys(block_size)
    for chain, expected in zip(tree, plain, strict=True):
        alone = chain_of(expected)
        assert chain.ids() == expected
        assert chain.digest == alone.digest
        assert chain.block_keys(block_size) == alone.block_keys(block_size)
        chain.check_integrity()


@given(ids, ids)
def test_the_digest_depends_on_ids_alone(left, right):
    assert chain_of(left, right).digest == chain_of(left + right).digest
    assert (chain_of(left).digest == chain_of(right).digest) == (left == right)


@given(ids, ids, ids)
def test_block_keys_are_equal_exactly_up_to_where_the_ids_are(trunk, left, right):
    one, other = chain_of(trunk, left), chain_of(trunk, right)
    shared = one.common_prefix(other.ids())
    pairs = list(zip(one.block_keys(4), other.block_keys(4), strict=False))
    assert [a == b for a, b in pairs] == [i < shared // 4 for i in range(len(pairs))]


def test_equal_blocks_behind_different_blocks_have_different_keys():
    keys = [*chain_of([1, 2] * 3).block_keys(2), *chain_of([3, 4], [1, 2]).block_keys(2)]
    assert len({*keys}) == 5


@given(ids, ids)
def test_common_prefix_is_the_longest(left, right):
    shared = chain_of(left).common_prefix(right)
    assert left[:shared] == right[:shared]
    assert shared == min(len(left), len(right)) or left[shared] != right[shared]


def test_common_prefix_of_long_chains():
    chain = chain_of(range(5000))
    other = [*range(3000), 7, *range(3001, 9000)]
    assert chain.common_prefix(tuple(other)) == 3000
    assert chain.common_prefix(range(9000)) == 5000


def test_a_segment_s_digest_names_its_ids_only():
    assert segment([1, 2], "user", "a").digest == segment([1, 2], "anchor", "b").digest
    assert segment([1, 2]).digest != segment([2, 1]).digest


def test_digests_are_the_same_on_every_machine():
    """Four little-endian bytes an id: journals written elsewhere hold them."""
    expected = hashlib.blake2b(b"\x01\0\0\0\x02\x03\0\0", digest_size=16).hexdigest()
    assert segment([1, 770]).digest == expected


def test_a_chain_of_one_segment_has_its_digest():
    assert chain_of([1, 2, 3]).digest == segment([1, 2, 3]).digest


def test_integrity_finds_an_id_that_was_changed():
    chain = chain_of([1, 2, 3], [4])
    chain._buffer.ids[1] = 9
    with pytest.raises(AgentKVError, match=chain.digest):
        chain.check_integrity()


def test_integrity_finds_a_key_that_was_changed():
    chain = chain_of(range(8))
    chain.block_keys(4)
    chain._buffer.keys[4][1] = b"?"
    with pytest.raises(AgentKVError, match="4-token"):
        chain.check_integrity()


def test_deep_forks_do_not_recurse():
    chain = chain_of([0])
    for i in range(3000):
        chain.extend(segment([7]))
        chain = chain.extend(segment([i]))
    assert chain.ids() == [0, *range(3000)]
    chain.check_integrity()
    assert len(chain.block_keys(4)) == 3001 // 4
