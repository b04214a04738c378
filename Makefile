# Needs Python 3.11 or newer and make, nothing else: each target makes .venv and installs what it uses, once.
PYTHON ?= python3
PYTEST_ARGS ?=
MUTANTS_ARGS ?=
# Processes that share the test files: most of the time is LLVM's, one kernel at a time in each process.
WORKERS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
# A third of pip's time would go into bytecode of modules that nobody imports; what is imported writes its own.
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
CODE := src tests tools examples benches
# Some hundred processes are started, and each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check style bench exhaustive mutants oldest clean
.DELETE_ON_ERROR:

# Types are checked beside the tests, which alone would leave a core idle while mypy has but one.
test: style
	$(PY) -m mypy & types=$$!; \
	$(PY) -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
		$(PYTEST_ARGS); tests=$$?; \
	wait $$types && exit $$tests

check: style
	$(PY) -m mypy

style: $(VENV)/.test
	$(PY) -m ruff check $(CODE)
	$(PY) -m ruff format --check $(CODE)
	$(PY) tools/size_report.py

demo: $(VENV)/.demo
	$(PY) examples/minilm.py

bench: $(VENV)/.test
	$(PY) tools/run_benches.py

# Small mistakes, made in copies one at a time: which ones no test sees. MUTANTS_ARGS as tools/mutants.py says.
mutants: $(VENV)/.test
	$(PY) tools/mutants.py --jobs $(WORKERS) $(MUTANTS_ARGS)

exhaustive: $(VENV)/.test
	$(PY) tools/exhaustive.py
	$(PY) tools/exhaustive.py --powers 1000000000
	$(PY) -m pytest -m "exhaustive or hypothesis" --hypothesis-profile new --numprocesses $(WORKERS) --dist worksteal \
		$(PYTEST_ARGS)

# The digests of docs/conformance.json with the oldest dependencies that pyproject.toml allows.
oldest: $(VENV)/.oldest
	$(VENV)/oldest/bin/python -m pytest tests/test_conformance.py $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "samebits needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	touch $@

# The build backend comes from constraints.txt too, so nothing unpinned is run.
$(VENV)/.build: constraints.txt | $(VENV)/.python
	$(PIP) hatchling editables
	touch $@

$(VENV)/.oldest: pyproject.toml | $(VENV)/.python
	$(PYTHON) -m venv $(VENV)/oldest
	$(VENV)/oldest/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
		llvmlite==0.45.* ml_dtypes==0.5.0 numpy==2.1.0 pytest hypothesis
	touch $@

$(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/.build
	$(PIP) --no-build-isolation --editable '.[$*]'
	touch $@
