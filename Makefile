# Two commands do everything on a fresh machine with python3, make and pip: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles what it imports; compiling all that is installed would take a minute.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile

.PHONY: setup demo test style types unit package docs reproduce reproduce-docs bench campaign soak wire deploy-check clean

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) --upgrade "pip>=25.1"
	$(INSTALL) --editable . --group dev
	touch $@

demo: setup
	$(BIN)/fedpact demo

test: style
	$(MAKE) --jobs 2 types unit  # pyright says what it found in one piece, between two lines of pytest

style: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/pyright

unit: setup
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder -q  # shared out by tests/conftest.py

package: setup
	rm -rf dist build/clean
	$(BIN)/python -m build --outdir dist . > /dev/null  # the sdist, and the wheel from it
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --no-compile dist/*.whl
	build/clean/bin/python tests/installed.py

docs: setup
	$(INSTALL) --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # into site; --quiet would hide warnings from --strict

EXPERIMENTS := prox-al/lcqp prox-al/fairness prox-al/np prox-al/figures fair-vfl/linear fair-vfl/mlp fair-vfl/figures \
	fair-vfl/paces fair-vfl/audit ssca/rows ssca/columns ssca/tradeoff pc-fedavg/mnist pc-fedavg/cifar10 pc-fedavg/local-steps
reproduce: setup  # every run of docs/reproduce.md, hours on two cores; rows that are there are not computed again
	for name in $(EXPERIMENTS); do $(BIN)/fedpact reproduce $$name --out docs/reproduced/$${name%/*}-$${name#*/}.json || exit 1; done

reproduce-docs: setup  # docs/reproduce.md and its figures, from docs/reproduced/*.json
	$(BIN)/python docs_site/reproduced.py

bench: setup
	-$(INSTALL) --group bench
	$(BIN)/python -m benchmarks

campaign: setup
	$(INSTALL) --group campaign
	$(BIN)/python -m campaign

soak: setup  # goes on from docs/soak.jsonl, the runs that have ended
	$(BIN)/python tests/soak.py --jobs $(or $(JOBS),1) --log docs/soak.jsonl --page docs/soak.md

deploy-check: setup  # before a release: every method on both engines, for real (half an hour)
	FEDPACT_RELEASE=1 $(BIN)/python -m pytest -q tests/test_flare.py tests/test_flower.py tests/test_flower_run.py tests/test_as_written.py

wire: setup
	$(BIN)/python tests/pacts.py

clean:
	rm -rf .venv build dist site fedpact-demo .pytest_cache .ruff_cache .hypothesis
