#!/usr/bin/env bash
# A reduced set of benchmarks for a machine without a GPU: minutes on two cores. `make bench` comes here.
#   benchmarks/reduced.sh vllm|sim [OUT_FOLDER]
# PYTHON names the interpreter, python3 by default.
set -euo pipefail
cd "$(dirname "$0")/.."
engine=$1 out=${2:-.benchmarks}
python=${PYTHON:-python3}
mkdir -p "$out"

run() {
    local name=$1
    shift
    echo
    echo "== $name"
    "$python" -m agentkv bench "$@" --json "$out/$name.json" --html "$out/$name.html"
}

"$python" -m pytest -q benchmarks --benchmark-only --timeout 0

# Virtual time: the shape of the published result, a fifth of its agents.
run sim-half-the-pool seed --engine sim:h200 --chains 20 --tool-calls 8 --pool 0.5 --start-spread 6 \
    --modes stock-off,stock,stock+cap,bidirectional --tool-seconds lognormal:1.2:0.8 --floor-samples 10
run sim-frontier seed --engine sim:h200 --chains 20 --prompt-tokens 4000 --tool-calls 4 --pool 1 --start-spread 10 \
    --modes stock,stock+cap,bidirectional --duration 60 --frontier 10,20,30,40 --floor-samples 0

if [ "$engine" = vllm ]; then
    # Real time: the demo model on the CPU. What it says is about the mechanism; it prefills some hundred tokens a second.
    run vllm-demo-model seed --engine vllm --chains 6 --prompt-tokens 512 --shared-tokens 128 --history-turns 4 \
        --tool-calls 2 --result-tokens 96:96 --result-pieces 3 --tool-seconds 1:2 --output-tokens 8 --start-spread 3 \
        --pool 0.6 --cap 3 --modes stock,stock+cap,bidirectional --floor-samples 2 --warm-up 3
fi

echo
echo "Pages with figures: $out/*.html"
echo "Not run:"
[ "$engine" = vllm ] || echo "- real vLLM: its CPU build is not used here"
cat <<'TEXT'
- 100 agents with 6,000 tokens of prompt, and anything on a GPU: benchmarks/gpu.md has the commands and the results
- stock+offload: vLLM's CPU tier needs a GPU
- recorded conversations and block-hash traces: they need a trace (agentkv bench --help)
- repetitions: each mode was run once; --repeat N shows the spread, which real engines have
- limits found by trial on real vLLM: stock+cap was given its limit there
TEXT
