#!/usr/bin/env bash
# A workload on one GPU; 8B-shaped model with random weights, whose speed is that of trained ones.
#   benchmarks/gpu.sh OUT_FOLDER POOL MODES [more options of `agentkv bench`]
# WORKLOAD=seed (the default): 100 agents, 6,000 tokens of prompt, 8 tool calls.
# WORKLOAD=replay: 80 recorded conversations of up to 16,000 tokens, from what benchmarks/pack_traces.sh has packed.
# WORKLOAD=hashes: recorded coding sessions of up to 40,000 tokens, known by their hashes, from the same.
# WORKLOAD=fanout: six times five agents that read what those before them said, and a join (KVCOMM's setting).
# CHAINS=N changes the number of agents of all but hashes. SHAPE=tiny CHAINS=2 dry-runs the same path on a machine without a GPU.
set -euo pipefail
out=$1 pool=$2 modes=$3
shift 3
workload=${WORKLOAD:-seed} shape=${SHAPE:-8b}
here=$(cd "$(dirname "$0")" && pwd)
bundle=${BUNDLE:-$here/../.bundle}
model=${TMPDIR:-/tmp}/agentkv-bench-$shape
python3 "$here/gpu_model.py" "$model" "$shape"
options=(--engine-option load_format='"dummy"' --engine-option skip_tokenizer_init=true)
if [ "$shape" = 8b ]; then
    options+=(--block-size 16 --engine-option gpu_memory_utilization=0.92 --engine-option max_num_seqs=128)
    options+=(--engine-option max_num_batched_tokens=8192 --engine-option cudagraph_capture_sizes='[1,2,4,8,16,24,32,40,48,64,96,128]')
fi
case $workload in
seed)
    options+=(--chains "${CHAINS:-100}" --prompt-tokens 6000 --shared-tokens 2000 --history-turns 40 --tool-calls 8)
    options+=(--result-tokens 300:300 --output-tokens 64 --tool-seconds lognormal:1.2:0.8)
    ;;
replay)
    # Their own delays where they were recorded; others' think times, at a pace that fits a short lease, elsewhere.
    options+=(--trace "$bundle"/traces/{taubench,sweagent,miniswe,bfcl}.jsonl.gz --think-times "$bundle/think_times")
    options+=(--delay-scale 0.05 --delay-cap 4 --max-tokens 16000 --chains "${CHAINS:-80}")
    options+=(--tokenizer "$bundle/tokenizer")
    ;;
hashes)
    options+=(--trace "$bundle/think_times" --delay-scale 0.1 --delay-cap 5 --max-tokens 40000)
    ;;
fanout)
    options+=(--shape kvcomm --chains "${CHAINS:-6}")
    ;;
*)
    echo "WORKLOAD=$workload is none of: seed, replay, hashes, fanout" >&2
    exit 2
    ;;
esac
python3 -m agentkv bench "$workload" --engine "vllm:$model" "${options[@]}" --start-spread 12 --pool "$pool" \
    --modes "$modes" --json "$out/$workload-$(echo "$pool-$modes" | tr ',+' '__').json" "$@"
