# Needs only Python >= 3.11: every target first brings the environment in $(VENV) up to date (.ci/setup), which is silent
# and quick when there is nothing to do.  `make PYTHON=python3.12 test` chooses the interpreter.

PYTHON ?=
VENV ?= .venv
# The live engines of the main job: light, real, a few seconds each.
LIGHT_ENGINES ?= vidur==0.0.26 nano-vllm-fork==20260210
PYTEST_ARGS ?= -n auto --maxprocesses 4

PY := '$(VENV)/bin/python'
ORACLE := '$(VENV)/bin/preempt-oracle'
CONFORM := $(ORACLE) matrix
BENCH := $(PY) bench/run.py
COMPILED := build/compiled
FAST := not vllm and not transformers and not lmdeploy and not sglang and not slow and not light and not long and not browser

.PHONY: help setup conform test bench compiled test-compiled prove zoo mutants mutants-all docs check check-ruff check-mypy check-imports check-docs clean

help:
	@echo 'make conform  judge real engine schedulers: shipped vLLM traces, Vidur and nano-vllm-fork live'
	@echo 'make test     the fast tests'
	@echo 'make check    ruff, mypy, import contracts, generated documents current'
	@echo 'make compiled  the monitor compiled, as a wheel in build/wheel (needs a C compiler)'
	@echo 'make bench    speed of the monitor, as ratios within one run'
	@echo 'make prove    the theorems of the cost model, by Z3 and again by cvc5'
	@echo 'make zoo      every known fault, searched for in a scheduler that has it'
	@echo 'make mutants  small changes of the cost model, the rules and the monitor, and what notices them'
	@echo 'make docs     the documentation site, into build/site'
	@echo 'make clean    remove what the above left in this checkout, .venv included'

setup:
	@PYTHON='$(PYTHON)' .ci/setup --venv '$(VENV)'

conform: setup
	@for engine in $(LIGHT_ENGINES); do $(ORACLE) engines install "$$engine" || exit $$?; done
	@$(CONFORM)

test: setup
	@$(PY) -m pytest -m '$(FAST)' $(PYTEST_ARGS)

# The wheel, and the same unpacked, for who wants to run it from here: PYTHONPATH=build/compiled.
compiled: setup
	@rm -rf build/wheel $(COMPILED)
	@HATCH_BUILD_HOOKS_ENABLE=1 $(PY) -m hatchling build -t wheel -d build/wheel
	@$(PY) -m pip install -q --disable-pip-version-check --no-deps --target $(COMPILED) build/wheel/*.whl

# What the compiled monitor has of its own: that it is there, and says what the one says that runs as it is written.
test-compiled: compiled
	@PYTHONPATH=$(COMPILED) $(PY) -c 'from preempt_oracle.monitor import cohort; assert not cohort.__file__.endswith(".py")'
	@PYTHONPATH=$(COMPILED) $(PY) -m pytest -m '$(FAST) and not as_written' $(PYTEST_ARGS) tests/oracle/monitor \
		tests/oracle/trace tests/oracle/vectors tests/oracle/cli/test_check.py tests/spec tests/properties/test_known_bad.py

# Both monitors, where there is a C compiler; else the one that runs as it is written.
bench: setup
	@if command -v cc >/dev/null 2>&1; then $(MAKE) --no-print-directory compiled; else rm -rf $(COMPILED); fi
	@PYTHONPATH=$(COMPILED) $(BENCH)

prove: setup
	@$(ORACLE) prove --second

zoo: setup
	@$(ORACLE) zoo

mutants: setup
	@$(PY) -m preempt_properties.cost_mutants
	@$(PY) -m preempt_oracle.rule_mutants rules --sample 6
	@$(PY) -m preempt_oracle.rule_mutants monitor --sample 40

mutants-all: setup
	@$(PY) -m preempt_oracle.rule_mutants --write

# The variable silences an advertisement of the theme's; what is wrong with the pages is told, and fails the build.
docs: setup
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --clean --config-file docs/site/mkdocs.yml

check: check-ruff check-mypy check-imports check-docs

check-ruff: setup
	@$(PY) -m ruff check

check-mypy: setup
	@$(PY) -m mypy

check-imports: setup
	@'$(VENV)/bin/lint-imports' --no-logo

check-docs: setup
	@$(PY) -m preempt_oracle.docs --check

clean:
	rm -rf .venv .venv.log build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find spec properties oracle tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
