# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check docs build format clean

demo: .venv/installed
	@rm -rf runs/demo
	@if $(BIN)/fedsage data get cora; then dataset=cora; else \
	  dataset=synthetic; \
	  echo "Cora could not be downloaded: using the built-in synthetic graph instead." >&2; fi; \
	$(BIN)/fedsage compare --dataset $$dataset --owners 3 --seeds 3 \
	  --methods locsage,fedsage,fedsage+,globsage --out runs/demo
	@$(BIN)/fedsage report runs/demo

test: .venv/installed-dev
	@$(MAKE) --no-print-directory check

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -m "" -n 2 --dist loadfile --no-loadscope-reorder

build: .venv/installed-dev
	@rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/pytest -m slow tests/test_packaging.py tests/full_install.py

docs: .venv/installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html"

format: .venv/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "fedsage needs Python 3.10 or newer, but $(PYTHON) is older: make PYTHON=python3.12 …" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || \
	  { rm -rf .venv; echo "This Python has no venv module: install it (Debian: apt install python3-venv)." >&2; exit 2; }

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing fedsage into .venv (only once; takes a minute or two) …" >&2
	@$(PIP) -e .
	@touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing fedsage and its test tools into .venv (only once; takes a minute or two) …" >&2
	@$(PIP) -e '.[all,dev,docs]'
	@touch $@ .venv/installed .venv/installed-docs

.venv/installed-docs: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing fedsage and its documentation tools into .venv (only once; takes a minute or two) …" >&2
	@$(PIP) -e '.[docs]'
	@touch $@

clean:
	rm -rf .venv runs owners build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
