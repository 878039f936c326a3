# Two commands: `make demo` and `make test`. Each sets up all it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format docs clean

demo: .venv/ready
	$(BIN)/potluck demo

# Workers of one thread each (tests/conftest.py), four for two cores: network tests mostly wait.
# A file's tests share their fixtures.
test: .venv/dev lint
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder -rs

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, in docs/_build/html; a warning is an error.
docs: .venv/dev
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

# torch first and alone: once its pinned build is there, nothing later pulls another.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

# What the tests, the site, exports and networks need besides; the demo does not wait for it.
.venv/dev: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist docs/_build
