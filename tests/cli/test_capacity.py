"""``agentkv capacity``, as a user calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentkv.cli import main
from agentkv.cli.size import parse_bytes, show_bytes
from agentkv.errors import SetupError

from .mistakes import one_line

LLAMA_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


def found(capsys: pytest.CaptureFixture[str], model: Path, *options: str) -> dict[str, Any]:
    assert main(("capacity", str(model), *options, "--json")) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_without_a_memory_it_says_what_a_token_takes(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    assert main(("capacity", str(model / "config.json"))) == 0
    out = capsys.readouterr().out
    assert "32 layers with all tokens: 8 KV heads of 128" in out
    assert "a token   131,072 bytes\n" in out
    assert "8,192 tokens" in out


def test_one_is_told_in_the_singular(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    one = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "hidden_size": 64}
    file.write_text(json.dumps({**LLAMA_8B, **one}), encoding="utf-8")
    assert main(("capacity", str(file), "--memory", "1GiB", "--weights-bytes", "0", "--branches", "1")) == 0
    out = capsys.readouterr().out
    assert "1 layer with all tokens: 1 KV head of 64\n" in out
    assert ", each with 1 branch\n" in out


def test_with_a_memory_it_counts_what_leases_hold(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    options = (
        "--memory",
        "11GiB",
        "--gpu-memory-utilization",
        "1",
        "--weights-bytes",
        "1GiB",
        "--kv-pool-ratio",
        "0.5",
    )
    report = found(capsys, model, *options, "--prompt-tokens", "1600", "--anchor-tokens", "800", "--branches", "2")
    assert next(iter(report.items())) == ("schema", "agentkv.capacity/1")
    assert report["memory"] == {"usable": 11 << 30, "weights": 1 << 30, "overhead": 0, "kv": 10 << 30}
    assert report["pool"]["blocks"] == 10 * 512 - 1
    assert report["pool"]["leasable_blocks"] == 2559
    # 100 blocks a chain, 50 of them the anchor's; a branch of 500 tokens takes 32 of its own.
    assert report["leased"]["chains"] == (2559 - 50) // (50 + 2 * 32)
    assert report["leased"]["anchors"] == 2559 // 50
    assert report["leased"]["branches"] == (2559 - 100) // 32
    assert main(("capacity", str(model), *options)) == 0
    out = capsys.readouterr().out
    assert "11.0 GiB to use - 1.0 GiB of weights = 10.0 GiB for KV" in out
    assert "one sequence of up to 81,904 tokens" in out


def test_split_and_type_change_what_a_token_takes(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    report = found(capsys, model, "--tensor-parallel", "16", "--kv-dtype", "fp8")
    assert report["bytes_per_token"] == 32 * 2 * 128
    assert report["layers"][0]["kv_heads_on_device"] == 1
    eight_devices = ("--memory", "80GiB", "--tensor-parallel", "8")
    assert found(capsys, model, *eight_devices, "--weights-bytes", "16GiB")["memory"]["weights"] == 2 << 30


def test_weights_are_those_in_the_folder(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    (model / "a.safetensors").write_bytes(b"x" * 1000)
    (model / "b.safetensors").write_bytes(b"x" * 24)
    assert found(capsys, model, "--memory", "1GiB", "--overhead-bytes", "1MiB")["memory"]["weights"] == 1024
    assert found(capsys, model, "--memory", "1GiB", "--weights-bytes", "0")["memory"]["weights"] == 0


def test_a_window_is_said(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    (model / "config.json").write_text(json.dumps({**LLAMA_8B, "sliding_window": 4096}))
    assert main(("capacity", str(model), "--memory", "80GB", "--weights-bytes", "16GB")) == 0
    out = capsys.readouterr().out
    assert "32 layers with the last 4,096 tokens: 8 KV heads of 128" in out
    assert "one sequence of any length" in out
    assert "runs without leases" in out


def test_sliding_layers_beside_full_ones_keep_everything_where_hybrids_are_off(
    capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    types = ["full_attention", "sliding_attention"] * 16
    (model / "config.json").write_text(json.dumps({**LLAMA_8B, "sliding_window": 128, "layer_types": types}))
    memory = ("--memory", "80GB", "--weights-bytes", "16GB")
    both = found(capsys, model, *memory)["pool"]
    unified = found(capsys, model, *memory, "--disable-hybrid-kv-cache-manager")["pool"]
    assert [group["window"] for group in both["groups"]] == [None, 128]
    assert unified["groups"] == [{"layers": 32, "window": None}]
    assert both["longest_sequence"] > 1.9 * unified["longest_sequence"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--memory", "lots"), "--memory 'lots': give bytes, as 80GiB"),
        (("--weights-bytes", "1GiB"), "--weights-bytes is a part of --memory BYTES: give that, too, or leave it out"),
        (("--memory", "0"), "--memory '0': give at least one byte"),
        (("--memory", "80GiB"), "give --weights-bytes, or 0"),
        (("--memory", "10GiB", "--weights-bytes", "16GB"), "nothing is left for KV"),
        (("--memory", "2MiB", "--weights-bytes", "0"), "hold no two blocks of 16 tokens, 2.0 MiB each"),
        (("--memory", "80GiB", "--weights-bytes=-5"), "--weights-bytes '-5'"),
        (("--kv-pool-ratio", "0"), "--kv-pool-ratio 0.0 must be above 0 and at most 1"),
        (("--gpu-memory-utilization", "1.5"), "--gpu-memory-utilization 1.5 must be"),
        (("--tensor-parallel", "3"), "--tensor-parallel 3 does not divide the model's 32 attention heads"),
        (("--tensor-parallel", "0"), "--tensor-parallel 0 must be at least 1"),
        (("--prompt-tokens", "0"), "--prompt-tokens 0 must be at least 1"),
        (("--branches=-1",), "--branches -1 must be at least 0"),
        (("--anchor-tokens", "7000"), "--anchor-tokens 7000 is more than --prompt-tokens 6000"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], model: Path, options: tuple[str, ...], message: str
) -> None:
    one_line(capsys, ("capacity", str(model), *options), message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "holds no JSON object"),
        (b"{}", "lacks 'num_hidden_layers', 'num_attention_heads', 'head_dim' or 'hidden_size': is it"),
        (b'{"model_type": "mamba", "state_size": 16}', "'mamba' has state-space layers"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    one_line(capsys, ("capacity", str(tmp_path)), message)


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 << 30), ("80GB", 80 * 10**9), ("80 g", 80 * 10**9), ("1.5KiB", 1536), ("1e9", 10**9), ("77", 77)],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes("--memory", text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1iB", "1.2.3", "-1GB", "nan", "inf", "1e999", "0.1", "5 bits"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(SetupError, match="--memory"):
        parse_bytes("--memory", text)


def test_sizes_are_shown_in_binary_units() -> None:
    assert [show_bytes(size) for size in (5, 1536, 3 << 20, 80 << 30, 3 << 40)] == [
        "5 B",
        "1.5 KiB",
        "3.0 MiB",
        "80.0 GiB",
        "3.0 TiB",
    ]
