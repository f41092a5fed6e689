#!/usr/bin/env bash
# The seed workload on one GPU: 100 agents, 6,000 tokens of prompt, 8 tool calls; 8B-shaped model, random weights.
#   benchmarks/gpu.sh OUT_FOLDER POOL MODES [more options of `agentkv bench seed`]
# SHAPE=tiny CHAINS=6 dry-runs the same path on a machine without a GPU.
set -euo pipefail
out=$1 pool=$2 modes=$3
shift 3
shape=${SHAPE:-8b} chains=${CHAINS:-100}
model=${TMPDIR:-/tmp}/agentkv-bench-$shape
python3 "$(dirname "$0")/gpu_model.py" "$model" "$shape"
options=(--engine-option load_format='"dummy"' --engine-option skip_tokenizer_init=true)
if [ "$shape" = 8b ]; then
    options+=(--block-size 16 --engine-option gpu_memory_utilization=0.92 --engine-option max_num_seqs=128)
    options+=(--engine-option max_num_batched_tokens=8192 --engine-option cudagraph_capture_sizes='[1,2,4,8,16,24,32,40,48,64,96,128]')
fi
python3 -m agentkv bench seed --engine "vllm:$model" "${options[@]}" --chains "$chains" \
    --prompt-tokens 6000 --shared-tokens 2000 --history-turns 40 --tool-calls 8 --result-tokens 300:300 \
    --output-tokens 64 --tool-seconds lognormal:1.2:0.8 --start-spread 12 --pool "$pool" --modes "$modes" \
    --json "$out/seed-$(echo "$pool-$modes" | tr ',+' '__').json" "$@"
