# make demo     train and compare a segmenter and two translators on the built-in corpus
# make test     run the tests
# make mutants  check that a named test notices each of some faults in code that decides results
# make mtdata   check the ids of the paper's corpora against the index of mtdata
# make check    lint, types, direction of imports
# make bench    run the benchmarks; results go to benchmarks/results
# make results  write the tables of results/ from its JSON files
# make clean    remove .venv, the demo and caches
# Each first sets up .venv: demo only what running needs, the others the development tools as well.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
READY := .venv/ready
READY_DEV := .venv/ready-dev

.PHONY: demo test mutants mtdata check bench results clean
.DELETE_ON_ERROR:

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	touch $@

$(READY_DEV): $(READY)
	$(INSTALL) '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/dpe run recipes/demo.toml --out demo
	$(BIN)/dpe show demo
	$(BIN)/dpe report demo

test: $(READY_DEV)
	$(BIN)/python -m pytest -n 2

mutants: $(READY_DEV)
	$(BIN)/python -m tests.mutants

mtdata: $(READY_DEV)
	$(PYTHON) -m venv .venv/mtdata
	.venv/mtdata/bin/python -m pip install --quiet mtdata==0.5.1
	$(BIN)/python -m pytest tests/test_paper_data.py

check: $(READY_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_imports.py

bench: $(READY_DEV)
	$(BIN)/python -m benchmarks

results: $(READY)
	$(BIN)/python -m results

clean:
	rm -rf .venv demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
