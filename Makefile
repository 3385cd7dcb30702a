# The two commands of the README: `make demo` and `make test`. Both make the environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
DEMO_RESULTS ?= results

.PHONY: demo test lint types tests faults fuzz test-oldest bench tables clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $(STAMP)

# What `make test` needs on top: test tools, Ray and submitit. `make demo` does not install them.
$(DEV): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(DEV)

demo: $(STAMP)
	$(BIN)/ssmlbench run --method bce,cap,bbam --dataset multidigits --pi 0.05 --seeds 2 --epochs 20 --results $(DEMO_RESULTS)
	$(BIN)/ssmlbench compare --dataset multidigits --pi 0.05 --results $(DEMO_RESULTS)

test: lint types tests

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(DEV)
	$(BIN)/mypy

tests: $(DEV)
	$(BIN)/pytest

# Cheats, crashes, hangs and damaged files. Damages files at random, FAULT_TRIES times: SEED=7 make faults repeats a series.
faults: $(DEV)
	FAULT_SEED=$${SEED:-$$RANDOM} FAULT_TRIES=$${TRIES:-300} $(BIN)/pytest -n 0 -m '' -s tests/faults

# Every parser against random files, 60 s each (EACH=600 make fuzz): with atheris if it is installed, else with hypothesis.
fuzz: $(DEV)
	$(BIN)/python -m tests.fuzz --seconds $${EACH:-60} $(TARGETS)

# The oldest dependencies that pyproject.toml allows, in an environment of its own.
OLDEST := .venv-oldest
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --constraint constraints-oldest.txt --editable . \
		build hatchling hypothesis pyte pytest pytest-xdist submitit
	$(OLDEST)/bin/pytest $(TESTS)

bench: $(DEV)
	$(BIN)/python benchmarks/run.py

tables: $(DEV)
	$(BIN)/python docs/tables.py

clean:
	rm -rf $(VENV) build dist
