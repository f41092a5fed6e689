from agentkv.kv import KVGroup, bytes_per_token, pool_tokens, spec_bytes_per_token


def test_bytes_per_token_of_a_known_model() -> None:
    # SmolLM2-135M: 30 layers, 3 KV heads of 64, bfloat16.
    assert bytes_per_token(layers=30, kv_heads=3, head_size=64, dtype_bytes=2) == 23_040


def test_tensor_parallel_divides_heads_and_replicates_the_last() -> None:
    one = bytes_per_token(layers=80, kv_heads=8, head_size=128, dtype_bytes=2)
    assert bytes_per_token(layers=80, kv_heads=8, head_size=128, dtype_bytes=2, tensor_parallel=4) == one // 4
    assert bytes_per_token(layers=80, kv_heads=8, head_size=128, dtype_bytes=2, tensor_parallel=16) == one // 8


def test_the_engines_own_specification_agrees_with_the_formula() -> None:
    page = 2 * 3 * 64 * 2 * 32
    assert spec_bytes_per_token([KVGroup(layers=30, page_bytes=page, block_size=32)]) == 23_040


def test_a_pool_holds_whole_blocks() -> None:
    assert pool_tokens(pool_bytes=1 << 20, token_bytes=1000, block_size=32) == 1024
