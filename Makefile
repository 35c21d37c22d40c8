# The commands of this project; `make help` lists them. Each makes .venv with what it needs the first time and installs
# nothing after that. Needs Python 3.10, 3.11 or 3.12 and GNU make, 3.81 (macOS) or later.

VENV ?= .venv
PYTHON ?=
TASK ?= regression
DATASET ?=
DEMO_ARGS ?=
PYTEST_ARGS ?=
NOTEBOOKS ?=
MINUTES ?= 60
CONSTRAINTS ?= constraints.txt

# Tests that depend most on the versions of other packages, and take a few minutes.
QUICK_TESTS := tests/maths/test_linalg.py tests/test_inducing.py tests/data/test_metrics.py tests/test_versions.py \
	tests/experiments/datasets tests/engine tests/contracts/test_errors.py tests/training/test_fit_models.py \
	$(patsubst %,tests/models/test_%.py,oracle limits pep_oracle)

# Tests that depend most on the order of rounding, and take less than a minute.
ROUNDING_TESTS := tests/maths/test_linalg.py tests/test_conditioning.py tests/training/test_ends.py

# Hides TensorFlow's notices, not its errors. (Two it writes before it reads this: oneDNN is on, there is no GPU.)
TF_CPP_MIN_LOG_LEVEL ?= 2
export TF_CPP_MIN_LOG_LEVEL

PY := $(VENV)/bin/python

.PHONY: help demo report tensorboard test test-slow test-rounding oldest package wheel lint size types format bench campaign notebooks \
	notebooks-update docs clean

help:
	@echo 'make demo       run the demonstration; TASK=classification, multiclass or streaming, DATASET=name, DEMO_ARGS=--short'
	@echo 'make report     write runs/report.html: tables and figures of the protocols that have run'
	@echo 'make tensorboard  show the training curves of runs/ in TensorBoard'
	@echo 'make test       run the tests, which must run 95 % of the package; PYTEST_ARGS="-k oracle" selects some'
	@echo 'make test-slow  run those that make test leaves out: more models and settings, XLA, GPU kernels, scripts of docs/'
	@echo 'make test-rounding  run some tests with the rounding errors of another processor'
	@echo 'make oldest     run some tests with the oldest versions that setup.cfg allows, in .venv-oldest'
	@echo 'make package    build the wheel, install it outside of the repository and try it with the packages of .venv'
	@echo 'make wheel      the same with packages of its own, downloaded anew'
	@echo 'make lint       check style and formatting (ruff)'
	@echo 'make size       count tokens of code, packed statements and long functions; fail above the limits'
	@echo 'make types      check types (mypy)'
	@echo 'make format     format the code, and mend what ruff can mend safely'
	@echo 'make bench      time one step of training against GPflow'
	@echo 'make campaign   run random cases; report what is wrong, MINUTES=60 for each of two parts'
	@echo 'make notebooks  execute every notebook from its text; writes nothing; NOTEBOOKS="streaming" selects some'
	@echo 'make notebooks-update  the same, and write the outputs to the notebooks'
	@echo 'make docs       build the documentation and run its recipes; open docs/_build/html/index.html'
	@echo 'make clean      remove .venv and whatever was built or cached; results in runs/ stay'
	@echo
	@echo 'PYTHON=python3.11 chooses the interpreter .venv is made with, VENV=path another place for it.'

demo: $(VENV)/.installed
	$(strip $(PY) -m experiments.demo $(if $(DATASET),--dataset $(DATASET)) --task $(TASK) $(DEMO_ARGS))

report: $(VENV)/.installed
	$(PY) -m experiments.papers.report

tensorboard: $(VENV)/.installed
	$(PY) -m tensorboard.main --logdir runs

bench: $(VENV)/.installed
	$(PY) -m experiments.benchmarks.collapsed_step

campaign: $(VENV)/.installed-dev
	PYTHONPATH=tests $(PY) -m campaign.attacks --cases 10000 --minutes $(MINUTES)
	PYTHONPATH=tests $(PY) -m campaign.convergence --problems 1600 --minutes $(MINUTES)

PYTEST = $(PY) -m pytest -n 2 --dist loadfile
MEASURED = PYTHONPATH=tests/support$${PYTHONPATH:+:$$PYTHONPATH} $(PYTEST) -m "not slow" -p measured_coverage
FIRST_PART := tests/models tests/estimators tests/contracts
COVERAGE := .pytest_cache/coverage.json

# All tests measure which lines and branches of the package they run. In two parts of about as many graphs: TensorFlow
# keeps some hundred kilobytes of every graph that a process has traced.
test: $(VENV)/.installed-dev
ifneq ($(PYTEST_ARGS),)
	$(strip $(PYTEST) $(PYTEST_ARGS))
else
	$(MEASURED) --save-coverage $(COVERAGE) $(FIRST_PART)
	$(MEASURED) --add-coverage $(COVERAGE) tests $(FIRST_PART:%=--ignore=%)
endif

test-slow:
	$(MAKE) test PYTEST_ARGS='-m slow'

# Another order of rounding: kernels of OpenBLAS for an older processor, and no oneDNN.
test-rounding:
	OPENBLAS_CORETYPE=Haswell TF_ENABLE_ONEDNN_OPTS=0 $(MAKE) test PYTEST_ARGS='-m "not slow" $(ROUNDING_TESTS)'

oldest:
	$(MAKE) test VENV=.venv-oldest CONSTRAINTS=constraints-oldest.txt PYTEST_ARGS='$(or $(PYTEST_ARGS),$(QUICK_TESTS))'

package: $(VENV)/.installed-dev
	.ci/wheel $(PY) $(CONSTRAINTS) --shared

wheel: $(VENV)/.installed-dev
	.ci/wheel $(PY) $(CONSTRAINTS)

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check
	$(PY) -m ruff format --check

size: $(VENV)/.installed-dev
	$(PY) .ci/size.py

types: $(VENV)/.installed-dev
	MYPYPATH=tests $(PY) -m mypy gpflow_pep experiments $(filter-out tests/campaign/test_%,$(wildcard tests/campaign/*.py))

format: $(VENV)/.installed-dev
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

notebooks: $(VENV)/.installed-dev
	$(strip $(PY) .ci/notebooks $(NOTEBOOKS))

notebooks-update: $(VENV)/.installed-dev
	$(strip $(PY) .ci/notebooks --update $(NOTEBOOKS))

# Needs no network: styles, fonts and inventories are in docs/, notebooks have their outputs. Recipes run if they have
# changed. -E reads all pages: of pages that it skips, Sphinx leaves the entries for searches out.
docs: $(VENV)/.installed-dev
	$(PY) -m sphinx -E -W --keep-going -q docs docs/_build/html

clean:
	@if test -f "$(VENV)/pyvenv.cfg"; then rm -rf "$(VENV)"; fi
	@rm -rf build dist docs/_build docs/images/notebooks docs/recipes *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . \( -name .git -o -name runs -o -name '.venv*' \) -prune -o \
		\( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# --- installation ---------------------------------------------------------------------------------------------------

INSTALL = $(PY) -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS)
REQUIREMENTS := setup.cfg pyproject.toml $(CONSTRAINTS)

# The checkout from which the environment has gpflow_pep; an error if it has none.
OWNER := import importlib.metadata, json, urllib.parse; \
	about = importlib.metadata.distribution("gpflow_pep").read_text("direct_url.json"); \
	print(urllib.parse.unquote(urllib.parse.urlparse(json.loads(about)["url"]).path))

# Compares the content of the requirements, not times: a copy of this folder has new ones. A stamp holds their checksum;
# one of an earlier version is empty and means the requirements that its checkout has. The environment of another
# checkout is used if it has the same requirements, and never changed.
define INSTALLED
	@wanted="$$(cat $(REQUIREMENTS) | cksum)"; known="$$(cat $@ 2>/dev/null)"; \
	if test "$$known" = "$$wanted"; then exit 0; fi; \
	owner="$$($(PY) -I -c '$(OWNER)' 2>/dev/null)"; \
	if test -n "$$owner" && test "$$owner" != '$(CURDIR)'; then \
		if test -f $@ && test -z "$$known" && test "$$(cd "$$owner" && cat $(REQUIREMENTS) | cksum)" = "$$wanted"; then exit 0; fi; \
		echo "$(VENV) is the environment of $$owner, whose requirements differ: VENV=path makes another one." >&2; \
		exit 1; \
	fi; \
	echo 'Installing gpflow_pep, TensorFlow$(2) into $(VENV), once; this downloads and takes a few minutes ...'; \
	$(INSTALL) -e '.[$(1)]' && echo "$$wanted" | tee $(3) >$@
endef

$(VENV)/.installed: $(VENV)/.made $(REQUIREMENTS)
	$(call INSTALLED,experiments,,)

$(VENV)/.installed-dev: $(VENV)/.made $(REQUIREMENTS)
	$(call INSTALLED,dev, and the tools,$(VENV)/.installed)

# What an interpreter must be: in the range of setup.cfg, and able to make environments.
CANDIDATES := python3.12 python3.11 python3.10 python3 python
USABLE := import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))
VERSION := import sys; print("%d.%d" % sys.version_info[:2])

# Makes the environment with PYTHON, or else with the first candidate that will do, and notes its version.
$(VENV)/.made:
	@if test -e $(VENV); then \
		echo '$(VENV) is unfinished, or not made by this Makefile: make clean removes it, VENV=path leaves it alone.' >&2; \
		exit 1; \
	fi; \
	for python in $(or $(PYTHON),$(CANDIDATES)); do \
		if "$$python" -c '$(USABLE)' >/dev/null 2>&1; then \
			echo "Making $(VENV) with $$python, $$("$$python" --version) ..."; \
			"$$python" -m venv $(VENV) && "$$python" -c '$(VERSION)' >$@; \
			exit; \
		fi; \
	done; \
	echo 'No usable Python among: $(or $(PYTHON),$(CANDIDATES)).' >&2; \
	echo 'It must be Python 3.10, 3.11 or 3.12 with its venv module (on Debian and Ubuntu: python3-venv).' >&2; \
	echo 'To name one that is elsewhere: make PYTHON=/path/to/python3.12 <target>.' >&2; \
	exit 1

# A PYTHON that is asked for must be the one .venv was made with.
ifneq ($(PYTHON),)
.PHONY: same-python
same-python: | $(VENV)/.made
	@if test "$$("$(PYTHON)" -c '$(VERSION)')" != "$$(cat $(VENV)/.made)"; then \
		echo "$(VENV) was made with Python $$(cat $(VENV)/.made), not with $(PYTHON): make clean, or set VENV." >&2; \
		exit 1; \
	fi
$(VENV)/.installed $(VENV)/.installed-dev: | same-python
endif
