# `make demo` and `make test` are all that a newcomer needs; each says beforehand what it downloads.
VENV ?= .venv
ENGINE ?= $(shell scripts/setup_env.sh engine)
PY := $(VENV)/bin/python
SETUP := VENV=$(VENV) ENGINE=$(ENGINE) PYTHON=$(PYTHON) scripts/setup_env.sh
RECIPE := pyproject.toml scripts/setup_env.sh

# Installing skips byte-compilation, so Python must be allowed to keep what it compiles.
export PYTHONDONTWRITEBYTECODE :=
# Material's banner about its successor would be in every build's output.
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test check bench figures docs soak help clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile

demo: $(VENV)/.stamp-demo-$(ENGINE) ## plan, act, observe, replan on vLLM's CPU build, with the ledger of every token
	@if [ "$(ENGINE)" != vllm ]; then echo "vLLM's CPU build is not used here: this runs on the simulator."; fi
	@$(PY) examples/plan_act_replan.py $(ENGINE)

test: $(VENV)/.stamp-test-$(ENGINE) ## all tests, those with a real vLLM engine included (minutes)
	@if [ "$(ENGINE)" != vllm ]; then echo "vLLM's CPU build is not used here: tests that need it are left out."; fi
	@$(PY) -m pytest -q -m "not soak and not vllm" -n auto --maxprocesses 4; status=$$?; \
	if [ "$(ENGINE)" = vllm ]; then $(PY) -m pytest -q -m "not soak and vllm" || status=$$?; fi; exit $$status

check: $(VENV)/.stamp-check ## lint, format, types, project rules, documentation
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(PY) scripts/check_project.py
	$(VENV)/bin/mkdocs build --strict --quiet

bench: $(VENV)/.stamp-test-$(ENGINE) ## a reduced set of benchmarks on this machine, its tables, and what was not run
	@PYTHON=$(PY) benchmarks/reduced.sh $(ENGINE)

figures: $(VENV)/.stamp-test-$(ENGINE) ## compute the simulated tables of the documentation anew, and write them into its pages
	@$(PY) benchmarks/figures.py

docs: $(VENV)/.stamp-check ## serve the documentation on localhost
	@$(VENV)/bin/mkdocs serve

soak: $(VENV)/.stamp-test-$(ENGINE) ## half an hour of random runs, cancellations and pool pressure on vLLM
	@if [ "$(ENGINE)" != vllm ]; then echo "vLLM's CPU build is not used here: there is nothing to run."; exit 1; fi
	@AGENTKV_SOAK_SECONDS=$${AGENTKV_SOAK_SECONDS:-1800} $(PY) -m pytest -q -s -m soak tests/vllm/test_soak.py

clean: ## remove what building and testing left, but not the environment
	rm -rf site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks

$(VENV)/.stamp-demo-%: $(RECIPE)
	@$(SETUP) demo
	@touch $@

$(VENV)/.stamp-test-%: $(VENV)/.stamp-demo-%
	@$(SETUP) test
	@touch $@

$(VENV)/.stamp-check: $(RECIPE)
	@$(SETUP) check
	@touch $@

.PRECIOUS: $(VENV)/.stamp-demo-%
