#!/usr/bin/env bash
# Put what a replay on another machine needs into the ignored folder .bundle: conversations, think times, a tokenizer.
#   benchmarks/pack_traces.sh TRAJECTORIES_FOLDER KV_CACHE_TESTER_FOLDER [TOKENIZER_FOLDER]
# Without TOKENIZER_FOLDER it is the demo model's, whose 49,152 ids every larger model knows.
set -euo pipefail
bundle=$(cd "$(dirname "$0")/.." && pwd)/.bundle
tokenizer=${3:-$(python3 -c 'from agentkv.engines.demo_model import demo_model_path; print(demo_model_path(lambda line: None))')}
mkdir -p "$bundle/traces" "$bundle/think_times" "$bundle/tokenizer"
cp "$1"/*.jsonl.gz "$bundle/traces/"
cp "$2"/*.json.gz "$bundle/think_times/"
for file in tokenizer.json tokenizer_config.json chat_template.jinja generation_config.json; do
    if [ -f "$tokenizer/$file" ]; then cp "$tokenizer/$file" "$bundle/tokenizer/"; fi
done
chmod -R u+w "$bundle/traces" "$bundle/think_times"
du -sh "$bundle/traces" "$bundle/think_times" "$bundle/tokenizer"
