# Everything runs in an environment of its own under .venv; only Python 3.11 and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
WORKERS ?= 2
SOURCES := pyproject.toml setup.py $(wildcard core/*.c core/*.h)
SUITE := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# Tests expect the compiled core; where it could not be built, they are told to do without.
CORE = $(if $(wildcard src/skep/_core*),,SKEP_NATIVE=0)

.PHONY: help demo test test-full test-numpy test-core test-adapters simulate fuzz check format walk bench bench-full bench-quality docs site sbom core wheel packages clean

help:  ## What can be made.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skep needs Python 3.11 or later; name one: make PYTHON=python3.12 …")'
	@echo "Making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(INSTALLED): $(SOURCES) | $(VENV)/pyvenv.cfg
	@echo "Installing skep with what it needs (numpy, apsw, msgspec, click) and building its compiled core"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(BIN)/python -c 'from skep import runtime; runtime.native or print("No C compiler, or no headers of Python: numpy does the work of the compiled core, only slower")'
	@touch $@

$(READY): $(INSTALLED)
	@echo "Installing the tools of development and every extra (some 800 MB; once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## Fill a bank, recall, show a conflict and an explanation.
	@$(BIN)/skep demo

test: $(READY)  ## The tests that run in a few minutes.
	$(CORE) $(SUITE) -m "not slow"

test-full: $(READY)  ## All tests, the long ones too.
	$(CORE) SKEP_SEARCH=10 $(SUITE)

test-numpy: $(READY)  ## The tests of rooms that call the compiled core, without it.
	SKEP_NATIVE=0 $(SUITE) -m "not slow" tests/text tests/storage tests/index tests/embedding tests/retrieval tests/semantics tests/surface

test-core: $(READY)  ## The compiled core under ASan and UBSan: all that parses files and users' texts.
	scripts/test_core.sh $(BIN)/python

simulate: $(READY)  ## A thousand histories full of faults, each from its seed; SEEDS=100000 for a long night.
	SKEP_EMBEDDER=static $(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --workers $(WORKERS)

fuzz: $(READY)  ## Generated inputs at every door; N=1000000 for a long night.
	SKEP_EMBEDDER=static $(BIN)/python -m tests.fuzz $(or $(N),10000)

test-adapters: $(INSTALLED)  ## Every framework in an environment of its own: its tests, and ours (needs the network).
	$(PYTHON) -m venv .venv-adapters
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check -e '.[adapters]'
	PYTHONPATH=. .venv-adapters/bin/python -m pytest -q tests/adapters tests/docs/test_examples.py -k 'adapters or frameworks' -W ignore -o asyncio_mode=auto
	.venv-adapters/bin/python scripts/framework_suites.py
	$(PYTHON) -m venv .venv-crewai  # its pins leave no room for the others
	.venv-crewai/bin/python -m pip install --quiet --disable-pip-version-check -e '.[crewai]' pytest pytest-asyncio hypothesis
	.venv-crewai/bin/python -m pytest -q tests/adapters/test_crewai_storage.py -o addopts= -W ignore
	.venv-crewai/bin/python scripts/framework_suites.py

check: $(READY)  ## Lint, types, direction of imports.
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(READY)  ## Format, and mend what lint can mend.
	$(BIN)/ruff format src tests benchmarks scripts
	$(BIN)/ruff check --fix src tests benchmarks scripts

walk: $(INSTALLED)  ## The modules that one remember and one recall pass through.
	@$(BIN)/python scripts/walk.py

bench: $(READY)  ## Speed against peers, in minutes: benchmarks/REPORT-quick.md.
	$(BIN)/python -m benchmarks.speed --quick
	$(BIN)/python -m benchmarks.report --results benchmarks/results/speed-quick.json

bench-full: $(READY)  ## Speed against peers, all sizes: benchmarks/REPORT.md.
	$(BIN)/python -m benchmarks.speed --full
	$(BIN)/python -m benchmarks.report --results benchmarks/results/speed-full.json

bench-quality: $(READY)  ## Quality of every preset; DATA=folder of evaluation sets, MODEL=folder of the published MiniLM.
	$(BIN)/python -m benchmarks.quality $(if $(DATA),--data $(DATA) --federated) $(if $(MODEL),--model $(MODEL))

docs: $(READY)  ## The reference pages, from the code.
	$(BIN)/python scripts/build_reference.py

site: $(READY)  ## The site of the documentation, in build/site; nothing on it is fetched when it is read.
	@$(BIN)/python scripts/build_site.py

sbom: $(READY)  ## dist/skep.cdx.json: what an installed skep consists of (CycloneDX).
	@$(BIN)/python scripts/build_sbom.py

core: | $(VENV)/pyvenv.cfg  ## Build the compiled core in place; only what has changed.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77'
	@$(BIN)/python setup.py --quiet build_ext --inplace

wheel: $(READY)  ## dist/: an sdist, and a wheel built from it that holds the core.
	scripts/build_wheel.sh $(BIN)/python

packages: $(INSTALLED)  ## dist/: server.json, skep.mcpb, a Claude Code plugin, a Gemini extension.
	@$(BIN)/python scripts/build_packages.py

clean:
	rm -rf $(VENV) build dist src/skep/_core* src/*.egg-info .pytest_cache .ruff_cache .hypothesis
