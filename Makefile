# Everything here needs make and Python 3.11 or newer with its venv module; the rest goes into .venv.
#   make test   check style and types, run the tests
#   make demo   watch sessions survive the death of what serves them
#   make bench  measure everything, for half an hour; the report lies in results/
#   make readme write what results/ holds into README.md and docs/ (another result: make RESULT=DIR readme)
#   make chaos  kill and disturb everything for ten minutes, and judge what is left
#   make lint   check style and types only
#   make lock   pin anew what .venv is made of (constraints.txt)
#   make clean  remove .venv and everything generated
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
export PATH ?= /usr/local/bin:/usr/bin:/bin

# The tests start thousands of interpreters, which would compile every module again where an image sets this.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench chaos demo test lint lock readme clean python

demo: .venv/stamp
	.venv/bin/turnkeeper demo

chaos: .venv/stamp
	.venv/bin/turnkeeper chaos run --seconds 600

bench: .venv/stamp
	.venv/bin/turnkeeper bench all --out results

RESULT ?= results

readme: .venv/stamp
	.venv/bin/python -m turnkeeper.benchmarks.report.readme $(RESULT) README.md

# In the order of their names the many short files come last, and the workers end at the same time.
test: lint
	.venv/bin/python -m pytest --numprocesses $$(($$(nproc 2>/dev/null || echo 1) + 1)) --dist loadfile \
	  --no-loadscope-reorder

lint: .venv/stamp
	.venv/bin/python -m ruff check
	.venv/bin/python -m ruff format --check
	.venv/bin/python -m mypy

# The build backend is installed first, so that it is pinned like everything else and no second environment is made for it.
.venv/stamp: pyproject.toml constraints.txt | python
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

lock: python
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	build/lock/bin/python -m pip freeze --disable-pip-version-check --exclude turnkeeper > build/constraints.txt
	mv build/constraints.txt constraints.txt
	rm -rf build/lock

clean:
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "turnkeeper: $(PYTHON) is not Python 3.11 or newer: name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "turnkeeper: $(PYTHON) has no venv module: install it (on Debian: python3-venv)" >&2; exit 1; }
