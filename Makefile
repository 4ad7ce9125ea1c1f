# Every command of the project. CI calls these and nothing else.
.PHONY: help setup demo check test bench clean
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/ready ## Make .venv with the CPU build of torch and everything for development

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup ## Compare six federated methods on real images: a table and a figure in runs/demo
	$(BIN)/flatfed compare examples/demo.toml --out runs/demo --seeds 0,1 \
		--methods fedavg,scaffold,fedsam,fedtoga,fedvssam,fedmoswa

check: setup ## Lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: setup ## Every test on both cores, with the coverage gates
	$(BIN)/python -m pytest -n 2 --cov --cov-report=
	@$(BIN)/coverage report --fail-under=90 --skip-covered
	@$(BIN)/coverage report --fail-under=100 --include='*/part.py,*/composition.py,*/method.py,*/rounds.py,*/views.py,*/mean.py,*/check.py' > /dev/null \
		|| { echo 'The contract itself (part, composition, method, rounds, views, mean, check) must be covered to 100 %.'; exit 1; }

bench: setup ## What the contract costs beside the gradient
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/by_hand.py

clean: ## Remove what the other targets made
	rm -rf .venv .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
