SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
comma := ,
space := $(subst ,, )

BOOTSTRAP   ?= python3
# Beside what a sweep needs: what tests need, and what commands about language models do.
EXTRAS      ?= $(subst $(space),$(comma),$(strip \
  $(if $(filter test test-all test-fast check release,$(MAKECMDGOALS)),dev) \
  $(if $(filter lm export-hf bench,$(MAKECMDGOALS)),hf)))
CONSTRAINTS ?= constraints.txt
override READY :=
# PYTHON=python make sweep: use the active environment, install nothing
ifeq ($(origin PYTHON),undefined)
  VENV   ?= .venv
  PYTHON := $(VENV)/bin/python
  override READY := $(VENV)/.stamp$(if $(EXTRAS),-$(subst $(comma),-,$(EXTRAS)))
endif
# uv does not read pip's variable; pip separates by spaces, uv by commas
export UV_FIND_LINKS ?= $(subst $(space),$(comma),$(strip $(value PIP_FIND_LINKS)))

# Variables after `make` are options of the program. It gets what they hold as it was typed: make expands no $(..) in
# it, and no shell reads it. ARGS holds further words, parted by spaces.
override TAKEN := TASK ATTN PRESET SEEDS SET RUN NAME RESULTS DEVICE JOBS ARGS
override GIVEN := $(strip $(foreach v,$(filter-out MAKE% MFLAGS,$(.VARIABLES)),$(if $(filter command,$(firstword $(origin $v))),$v)))
$(foreach v,$(filter-out $(TAKEN) PYTHON BOOTSTRAP EXTRAS CONSTRAINTS VENV UV_FIND_LINKS SHELL,$(GIVEN)),\
  $(error There is no variable $v; there are $(TAKEN). Other options of the program go into ARGS="--name value"))
$(foreach v,$(filter $(TAKEN),$(GIVEN)),$(eval override $v := $$(value $v)))
export $(filter $(TAKEN),$(GIVEN))
option = $(if $(filter $1,$(GIVEN)),$(if $($1),$2 "$$$1"))
TASK_ATTN = $(call option,TASK,--task) $(call option,ATTN,--attn)
OPTIONS = $(call option,PRESET,--preset) $(call option,SEEDS,--seeds) $(call option,SET,--set) $(call option,RUN,--run) \
  $(call option,RESULTS,--results) $(call option,DEVICE,--device) $(call option,JOBS,--jobs) $(if $(filter ARGS,$(GIVEN)),$$ARGS)
LAB = @set -f; $(PYTHON) -m icl_lab

override OWN := help bench test test-all test-fast test-lowest check lock docs docs-html notebooks execute release
# Tests at once: as many as cores, and one more for those that wait.
override AT_ONCE := -n $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN || echo 2) + 1 ))) --maxprocesses 5 --dist worksteal
# Every other target is a command of the program, which says so where it has none of that name.
override ASKED := $(filter-out $(OWN) sweep experiment judge $(READY),$(MAKECMDGOALS))

.PHONY: $(OWN) sweep experiment judge $(ASKED)
help: ## this list
	@$(or $(wildcard $(PYTHON)),$(BOOTSTRAP)) -I icl_lab/cli/menu.py
	@echo 'Work on the repository:'
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo 'Variables are options: $(filter-out ARGS,$(TAKEN)). ARGS= takes others, ARGS=--help names them.'
	@echo '  e.g. make sweep TASK=linear ATTN="softmax ssa" PRESET=smoke ARGS="--dry-run"'
sweep: $(READY)
	$(LAB) sweep $(or $(call option,TASK,--task),--task linear) $(or $(call option,ATTN,--attn),--attn softmax) $(call option,NAME,--name) $(OPTIONS)
experiment: $(READY)
	$(LAB) experiment $(call option,NAME,) $(TASK_ATTN) $(OPTIONS)
judge: $(READY)
	$(LAB) judge $(call option,ATTN,) $(call option,TASK,--task) $(call option,NAME,--name) $(OPTIONS)
ifneq ($(ASKED),)
$(ASKED): $(READY)
	$(LAB) '$@' $(TASK_ATTN) $(call option,NAME,--name) $(OPTIONS)
endif
test: $(READY) ## run the tests, but for the exhaustive ones (ARGS= for pytest)
	@printf '%s\n' "-m pytest $(AT_ONCE) -m 'not exhaustive' $${ARGS-}" | xargs $(PYTHON)
test-all: $(READY) ## run all tests: those too that kill processes and build wheels
	@printf '%s\n' "-m pytest $(AT_ONCE) $${ARGS-}" | xargs $(PYTHON)
bench: $(READY) ## measure how fast this is, as ratios within one run (ARGS="--only step")
	@$(PYTHON) -m benchmarks $(OPTIONS)
test-fast: $(READY) ## run the tests that are not marked slow: under a minute, for the daily loop
	@printf '%s\n' "-m pytest $(AT_ONCE) -m 'not slow' $${ARGS-}" | xargs $(PYTHON)
# Old packages warn of one another. The extras have floors of their own, which this leaves out.
test-lowest: ## run the fast tests with the oldest packages that pyproject.toml admits (needs uv)
	@uv venv -q --clear --python 3.11 .venv-lowest
	@uv pip install -q --python .venv-lowest --resolution lowest-direct -e .
	@uv pip install -q --python .venv-lowest pytest pytest-timeout pytest-xdist hypothesis pyyaml 'scikit-learn<1.8'
	@printf '%s\n' "-m pytest $(AT_ONCE) -W default --disable-warnings -m 'not slow and not exhaustive' tests $${ARGS-}" | xargs .venv-lowest/bin/python
override LOCKED := uv pip compile -q --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --no-annotate --custom-compile-command 'make lock' -c $(CONSTRAINTS) pyproject.toml -
lock: ## write requirements.lock and requirements-cpu.lock: versions and hashes of what a sweep needs (needs uv)
	@echo hatchling | UV_FIND_LINKS= $(LOCKED) --universal -o requirements.lock
	@sed -n 's/^torch==.*/&+cpu/p; $$a hatchling' $(CONSTRAINTS) | $(LOCKED) --python-platform x86_64-manylinux_2_28 \
	  $(if $(UV_FIND_LINKS),,--torch-backend cpu) -o requirements-cpu.lock
check: $(READY) ## formatting, lint, types, layering and README in step
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy
	@printf '%s\n' "-m pytest tests/test_layering.py tests/test_readme.py $${ARGS-}" | xargs $(PYTHON)

ifdef READY
override PACKAGE := .$(if $(EXTRAS),[$(EXTRAS)])
$(READY): pyproject.toml $(CONSTRAINTS)
	@echo "setting up $(VENV), once: $(or $(EXTRAS),what a sweep needs)" >&2
	@if command -v uv >/dev/null; \
	then { test -x $(PYTHON) || uv venv -q $(VENV); } && uv pip install --python $(PYTHON) -c $(CONSTRAINTS) -e '$(PACKAGE)'; \
	else { test -x $(PYTHON) || $(BOOTSTRAP) -m venv $(VENV); } && $(PYTHON) -m pip install --disable-pip-version-check --no-compile -c $(CONSTRAINTS) -e '$(PACKAGE)'; fi >&2
	@touch $@ $(VENV)/.stamp
	@echo "$(VENV) is there: make sweep, or $(VENV)/bin/icl-lab --help" >&2
endif

# The notebooks of docs/ hold what their cells show: to be done again after a change of a cell.
notebooks: ## execute the notebooks of docs/ and keep their outputs in them
	@$(MAKE) --no-print-directory EXTRAS=dev,notebook execute
execute: $(READY)
	@$(PYTHON) docs/tutorials/execute.py
# What is published, nothing is: --address says where the files will lie.
release: $(READY) ## write evidence, source distribution and wheel, with checksums, into dist/ (ARGS="--address https://..")
	@printf '%s\n' "-m docs.release $${ARGS-}" | xargs $(PYTHON)
# The documentation needs packages that nothing else needs: they are installed beside the usual ones when it is first built.
docs: ## write the tables of README and docs, and build docs/ into docs/_build/, to be read from disk, with search
	@$(MAKE) --no-print-directory EXTRAS=dev,docs docs-html
docs-html: $(READY)
	@$(PYTHON) -m docs.tables
	@$(PYTHON) -m sphinx -q -W --keep-going docs docs/_build
	@echo "wrote docs/_build; next: open docs/_build/index.html"
