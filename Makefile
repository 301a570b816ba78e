# Everything runs in its own environment under .venv; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
WORKERS ?= 2

.PHONY: help demo test test-full check format bench bench-full bench-quality docs clean

help:  ## What can be made.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml native/pyproject.toml native/setup.py $(wildcard native/*.c native/*.h)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@$(BIN)/python -m pip install --quiet ./native 2>$(VENV)/native.log \
	  || echo "skep-native was not built ($(VENV)/native.log says why): numpy does the same, only slower"
	@touch $(STAMP)

demo: $(STAMP)  ## Fill a bank, recall, show a conflict and an explanation.
	@$(BIN)/skep demo

test: $(STAMP)  ## The tests that run in a few minutes.
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-full: $(STAMP)  ## All tests, the long ones too.
	SKEP_SEARCH=10 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(STAMP)  ## Lint, types, direction of imports, docs examples.
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/docs

format: $(STAMP)
	$(BIN)/ruff format src tests benchmarks scripts
	$(BIN)/ruff check --fix src tests benchmarks scripts

bench: $(STAMP)  ## Speed against peers, in minutes: benchmarks/REPORT-quick.md.
	$(BIN)/python -m benchmarks.speed --quick
	$(BIN)/python -m benchmarks.report --results benchmarks/results/speed-quick.json

bench-full: $(STAMP)  ## Speed against peers, all sizes: benchmarks/REPORT.md.
	$(BIN)/python -m benchmarks.speed --full
	$(BIN)/python -m benchmarks.report --results benchmarks/results/speed-full.json

bench-quality: $(STAMP)  ## Quality of every preset; DATA=folder of evaluation sets, MODEL=folder of MiniLM.
	$(BIN)/python -m benchmarks.quality $(if $(DATA),--data $(DATA) --federated) $(if $(MODEL),--model $(MODEL))

docs: $(STAMP)  ## The reference pages, from the code, and the picture of recall, from the results.
	$(BIN)/python scripts/build_reference.py
	$(BIN)/python scripts/draw_recall.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
