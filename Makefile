SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
comma := ,
space := $(subst ,, )

BOOTSTRAP   ?= python3
EXTRAS      ?= dev
CONSTRAINTS ?= constraints.txt
# PYTHON=python make sweep: use the active environment, install nothing
ifeq ($(origin PYTHON),undefined)
  VENV   ?= .venv
  PYTHON := $(VENV)/bin/python
  READY  := $(VENV)/.stamp-$(subst $(comma),-,$(EXTRAS))
endif
# uv does not read pip's variable; pip separates by spaces, uv by commas
export UV_FIND_LINKS ?= $(subst $(space),$(comma),$(strip $(PIP_FIND_LINKS)))

TASK    ?= linear
ATTN    ?= softmax
NAME    ?=
RUN     ?=
PRESET  ?= lite
SEEDS   ?= 1
JOBS    ?= 1
DEVICE  ?= auto
RESULTS ?= results
WHAT    ?= normalizers
PROMPT  ?=
FUNCTION ?=
ARGS    ?=

LAB   = $(PYTHON) -m icl_lab
WHERE = --preset $(PRESET) --device $(DEVICE) --results "$(RESULTS)"
RUNS  = --task "$(TASK)" $(foreach rule,$(ATTN),--attn "$(rule)") --seeds $(SEEDS) $(WHERE)

MODELS = $(if $(RUN),$(foreach run,$(RUN),--run "$(run)") $(WHERE),$(RUNS))
# the needle is sought where there is one, unless another task is named
needle: TASK = $(if $(filter command environment,$(origin TASK)),$(TASK),needle)

.PHONY: help sweep compare deviant attention needle fading law saturation probe heads boundary ablate tradeoff experiment claims train functions costs bench list doctor index test check
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo '  e.g. make sweep TASK=linear ATTN=ssa PRESET=smoke ARGS="--set train.steps=500"'
sweep: $(READY) ## train and test under shift (TASK= ATTN= PRESET= SEEDS= JOBS= DEVICE= RESULTS= ARGS=)
	@$(LAB) sweep $(RUNS) --jobs $(JOBS) $(ARGS)
compare: $(READY) ## compare normalizers, paired over seeds (TASK= ATTN="softmax ssa" SEEDS= JOBS=)
	@$(LAB) compare $(RUNS) --jobs $(JOBS) $(ARGS)
deviant: $(READY) ## multiply one number of the prompt: Table 5 and beyond (as compare; ARGS="--position 5")
	@$(LAB) deviant $(RUNS) --jobs $(JOBS) $(ARGS)
attention: $(READY) ## every head on a prompt, as a page (TASK= ATTN="softmax ssa" PROMPT="1,-2,3,70" or random:sigma=10 FUNCTION=)
	@$(LAB) attention $(MODELS) --prompt "$(PROMPT)" --function "$(FUNCTION)" $(ARGS)
needle: $(READY) ## score heads by their attention to the needle (ATTN= SEEDS=, or RUN= the folder of a run)
	@$(LAB) needle $(MODELS) $(ARGS)
fading: $(READY) ## follow every head as prompts grow (TASK= ATTN= SEEDS=, or RUN=)
	@$(LAB) fading $(MODELS) $(ARGS)
boundary: $(READY) ## the values that answers never exceed, f(x) = x to 10x (TASK= ATTN="softmax ssa" SEEDS=, or RUN=)
	@$(LAB) boundary $(MODELS) $(ARGS)
experiment: $(READY) ## a published table or figure, ours beside theirs (NAME=ssa-table1 PRESET= SEEDS= JOBS=)
	@$(LAB) experiment "$(NAME)" --seeds $(SEEDS) $(WHERE) --jobs $(JOBS) $(ARGS)
claims: $(READY) ## what held and what did not, from finished results, without training
	@$(LAB) claims --preset $(PRESET) --results "$(RESULTS)"
law: $(READY) ## which law of n a free-form factor has learned (TASK= SEEDS=; rule ssmax-free)
	@$(LAB) law --task "$(TASK)" --seeds $(SEEDS) $(WHERE) $(ARGS)
saturation: $(READY) ## let one number grow: heads, errors, and whether attention is the cause (TASK= ATTN= SEEDS=)
	@$(LAB) saturation $(MODELS) $(ARGS)
probe: $(READY) ## are the single numbers of a disturbed prompt still known? (TASK=every ATTN= SEEDS=, or RUN=)
	@$(LAB) probe $(MODELS) $(ARGS)
heads: $(READY) ## what heads look at, by place and shift (TASK= ATTN= SEEDS=, or RUN=)
	@$(LAB) heads $(MODELS) $(ARGS)
ablate: $(READY) ## one part of the model left out at a time (TASK= ATTN= SEEDS= JOBS=)
	@$(LAB) ablate $(RUNS) --jobs $(JOBS) $(ARGS)
tradeoff: $(READY) ## retrieval far out against robustness to a deviant, from what is stored
	@$(LAB) tradeoff --preset $(PRESET) --results "$(RESULTS)" $(ARGS)
train: $(READY) ## train only (as sweep)
	@$(LAB) train $(RUNS) $(ARGS)
list: $(READY) ## say what there is (WHAT=tasks, normalizers, positions, presets or runs)
	@$(LAB) list $(WHAT) --results "$(RESULTS)"
functions: $(READY) ## draw what each normalizer does to scores: who fades, who concentrates (no training)
	@$(LAB) functions --results "$(RESULTS)" $(ARGS)
costs: $(READY) ## measure time and memory of each normalizer beside softmax (DEVICE= ARGS="--lengths 256,1024")
	@$(LAB) costs --device $(DEVICE) --results "$(RESULTS)" $(ARGS)
bench: $(READY) ## measure speed: against Hugging Face, the machine's limit, and one another (DEVICE= ARGS="--only step")
	@$(LAB) bench --device $(DEVICE) --results "$(RESULTS)" $(ARGS)
doctor: $(READY) ## say what this machine offers
	@$(LAB) doctor --results "$(RESULTS)"
index: $(READY) ## write the tables of README and docs from docstrings, commands and stored results
	@$(LAB) index
test: $(READY) ## run the tests (ARGS= for pytest)
	@$(PYTHON) -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)
check: $(READY) ## formatting, lint, types, layering and README in step
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy
	@$(PYTHON) -m pytest tests/test_layering.py tests/test_readme.py $(ARGS)

ifdef READY
$(READY): pyproject.toml $(CONSTRAINTS)
	@echo "setting up $(VENV) (once; a minute or so)" >&2
	@if command -v uv >/dev/null; \
	then { test -x $(PYTHON) || uv venv -q $(VENV); } && uv pip install -q --python $(PYTHON) -c $(CONSTRAINTS) -e '.[$(EXTRAS)]'; \
	else { test -x $(PYTHON) || $(BOOTSTRAP) -m venv $(VENV); } && $(PYTHON) -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[$(EXTRAS)]'; fi
	@touch $@
endif

# The site needs packages that nothing else needs: they are installed beside the usual ones when it is first built.
.PHONY: docs site
docs: ## build the site of docs/ into site/, to be read from disk, with search
	@$(MAKE) --no-print-directory EXTRAS=dev,docs site
site: $(READY)
	@$(PYTHON) -m sphinx -q -W --keep-going docs site
	@echo "wrote site; next: open site/index.html"
