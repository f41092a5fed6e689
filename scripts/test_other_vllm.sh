#!/bin/sh
# Run the scheduler's tests against another vLLM: the classes are pure Python, so the wheel's .py files suffice
# beside the installed build's dependencies. Usage: scripts/test_other_vllm.sh 0.26.0
set -eu
version=$1
PATH=$PWD/${VENV:-.venv}/bin:$PATH
folder=${AGENTKV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agentkv}/vllm-$version
if [ ! -d "$folder/vllm" ]; then
    mkdir -p "$folder"
    python -m pip download --quiet --no-deps --dest "$folder" "vllm==$version"
    python - "$folder" <<'PY'
import sys
from pathlib import Path
from zipfile import ZipFile

folder = Path(sys.argv[1])
wheel = next(folder.glob("*.whl"))
with ZipFile(wheel) as archive:
    archive.extractall(folder, [n for n in archive.namelist() if n.endswith(".py") or ".dist-info/" in n])
wheel.unlink()
PY
fi
PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}" python - "$version" <<'PY'
import sys
import vllm

assert vllm.__version__.startswith(sys.argv[1]), f"vllm {vllm.__version__} was imported, not {sys.argv[1]}"
PY
# What vLLM says of model configurations is compared with the installed version only.
PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}" exec python -m pytest -q tests/plugin \
    --ignore tests/plugin/test_capacity.py
