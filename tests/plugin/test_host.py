"""The workers' half of the second tier: layouts of KV, copies out and back, shards of a block on two workers."""

import pytest
import torch

from agentkv.errors import NotSupported
from agentkv.plugin.commands import Command, Ended, TierReport
from agentkv.plugin.host import HostMemory
from agentkv.plugin.regions import regions

BLOCKS = 12


def layers(count: int = 3, *, heads: int = 2, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Layers as vLLM's CPU and FlashAttention backends lay them out: [blocks, heads, tokens, 2 × head size]."""
    return [torch.randn(BLOCKS, heads, 4, 16).to(dtype) for _ in range(count)]


def move(host: HostMemory, number: int, *, out: bool, blocks: list[int], slots: list[int]) -> Ended:
    places = tuple(range(len(blocks)))
    command = Command(number=number, out=out, blocks=tuple(blocks), slots=tuple(slots), checked=places)
    host.submit([command], ordered=False)
    return host.poll()[number]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_come_back_as_they_left_and_nothing_else_changes(dtype: torch.dtype) -> None:
    kv = layers(dtype=dtype)
    before = [layer.clone() for layer in kv]
    host = HostMemory(regions(kv, BLOCKS), slots=8)
    assert host.bytes_per_block == sum(layer[0].numel() * layer.element_size() for layer in kv)
    assert move(host, 1, out=True, blocks=[7, 2, 9], slots=[0, 1, 5]).failed == frozenset()
    for layer in kv:
        layer[[7, 2, 9]] = 0
    # To other places, in another order.
    assert move(host, 2, out=False, blocks=[3, 11, 4], slots=[1, 5, 0]).failed == frozenset()
    for layer, old in zip(kv, before, strict=True):
        assert torch.equal(layer[[3, 11, 4]], old[[2, 9, 7]])
        untouched = [0, 1, 5, 6, 8, 10]
        assert torch.equal(layer[untouched], old[untouched])


def test_more_blocks_than_staging_memory_holds_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = layers()
    before = [layer.clone() for layer in kv]
    monkeypatch.setattr("agentkv.plugin.host.STAGING_BYTES", 2 * 3 * 2 * 4 * 16 * 4)
    host = HostMemory(regions(kv, BLOCKS), slots=BLOCKS)
    order = [5, 3, 11, 0, 7]
    move(host, 1, out=True, blocks=order, slots=[4, 5, 6, 9, 1])
    for layer in kv:
        layer.zero_()
    move(host, 2, out=False, blocks=order, slots=[4, 5, 6, 9, 1])
    assert all(torch.equal(layer[order], old[order]) for layer, old in zip(kv, before, strict=True))


@pytest.mark.parametrize("slots", [1 << 40, 1 << 70])
def test_more_than_the_machine_has_is_missed_when_it_is_asked_for(slots: int) -> None:
    with pytest.raises((MemoryError, OSError)):
        HostMemory(regions(layers(), BLOCKS), slots)


def test_what_was_spoilt_in_host_memory_is_seen_and_where() -> None:
    kv = layers()
    host = HostMemory(regions(kv, BLOCKS), slots=4)
    move(host, 1, out=True, blocks=[1, 2, 3], slots=[0, 1, 2])
    host.memory[1, 5] ^= 1
    assert move(host, 2, out=False, blocks=[1, 2, 3], slots=[0, 1, 2]).failed == {1}
    host.memory[1, 5] ^= 1
    # Words that changed places are not what they were either.
    host.memory[2, [0, 1]] = host.memory[2, [1, 0]]
    assert move(host, 3, out=False, blocks=[1, 2, 3], slots=[0, 1, 2]).failed == {2}


def test_a_copy_that_cannot_be_done_is_reported_and_never_raised() -> None:
    host = HostMemory(regions(layers(), BLOCKS), slots=2)
    assert move(host, 1, out=True, blocks=[1, BLOCKS + 5], slots=[0, 1]).failed == {0, 1}
    assert move(host, 2, out=True, blocks=[1, 2], slots=[0, 1]).failed == frozenset()


class Gate:
    """A point of a device that has not come yet, or an error of the device."""

    def __init__(self) -> None:
        self.state: bool | Exception = False

    def query(self) -> bool:
        if isinstance(self.state, Exception):
            raise self.state
        return self.state


def test_a_copy_that_fails_half_way_ends_when_what_was_queued_of_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    host, gate = HostMemory(regions(layers(), BLOCKS), slots=4), Gate()
    monkeypatch.setattr(host._lanes[True], "mark", lambda: gate)
    command = Command(number=1, out=True, blocks=(1, BLOCKS), slots=(0, 1), checked=())
    host.submit([command], ordered=False)
    assert host.poll() == {}
    gate.state = True
    assert host.poll()[1].failed == {0, 1}


def test_an_error_of_the_device_fails_the_copy_and_ends_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    host, gate = HostMemory(regions(layers(), BLOCKS), slots=4), Gate()
    monkeypatch.setattr(host._lanes[True], "mark", lambda: gate)
    host.submit([Command(number=1, out=True, blocks=(1,), slots=(0,), checked=())], ordered=False)
    gate.state = RuntimeError("device-side assert")
    assert host.poll()[1].failed == {0}


def test_keys_and_values_apart_layers_in_one_piece_and_permuted_ones_are_all_read() -> None:
    apart = torch.randn(2, BLOCKS, 4, 2, 8)
    assert [tuple(view.shape) for view in regions([apart], BLOCKS)] == [(BLOCKS, 32), (BLOCKS, 32)]
    permuted = torch.randn(BLOCKS, 4, 2, 16).permute(0, 2, 1, 3)
    assert [tuple(view.shape) for view in regions([permuted], BLOCKS)] == [(BLOCKS, 64)]
    together = torch.randn(BLOCKS, 3, 2, 4, 16)
    views = regions([together[:, layer] for layer in range(3)], BLOCKS)
    assert [tuple(view.shape) for view in views] == [(BLOCKS, 64)] * 3
    views[1][4] = 0
    assert not together[4, 1].any()
    assert together[4, 0].all()
    finer = torch.randn(2 * BLOCKS, 2, 2, 16)
    assert [tuple(view.shape) for view in regions([finer, finer], BLOCKS)] == [(BLOCKS, 64)], "once, however often"


def test_a_layout_with_holes_is_refused_by_name() -> None:
    with pytest.raises(NotSupported, match="strides"):
        regions([torch.randn(BLOCKS, 4, 32)[:, :, ::2]], BLOCKS)
    with pytest.raises(NotSupported, match="shape"):
        regions([torch.randn(5, 7)], BLOCKS)


def test_each_of_two_tensor_parallel_workers_moves_its_own_shard() -> None:
    whole = layers(heads=4)
    before = [layer.clone() for layer in whole]
    shards = [[layer[:, half * 2 : half * 2 + 2].clone() for layer in whole] for half in range(2)]
    hosts = [HostMemory(regions(shard, BLOCKS), slots=4) for shard in shards]
    for number, out in ((1, True), (2, False)):
        command = Command(number=number, out=out, blocks=(3, 8), slots=(2, 0), checked=(0, 1))
        reports = []
        for host, shard in zip(hosts, shards, strict=True):
            if not out:
                for layer in shard:
                    layer[[3, 8]] = 0
            host.submit([command], ordered=False)
            reports.append(TierReport(host.poll()))
        hosts[1].memory[0, 3] ^= 1 if out else 0
        total = reports[0].aggregate(reports[1]).ended[number]
        assert (total.workers, total.failed) == (2, frozenset() if out else {1})
    joined = [torch.cat([shards[0][at], shards[1][at]], dim=1) for at in range(len(before))]
    assert all(torch.equal(layer[3], old[3]) for layer, old in zip(joined, before, strict=True))
    assert all(torch.equal(layer[8][:2], old[8][:2]) for layer, old in zip(joined, before, strict=True))
    wrong = [not torch.equal(layer[8][2:], old[8][2:]) for layer, old in zip(joined, before, strict=True)]
    assert any(wrong), "the block that one worker reported as bad"
