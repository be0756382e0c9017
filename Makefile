# One command each; all expect an active environment with `pip install -e '.[test]'`.

PYTHON ?= python

.PHONY: check test learn torture bench docs

check:  ## lint, format, types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy embodied/core embodied/replay dreamerv3/losses.py

test:  ## everything but the learning curves
	$(PYTHON) -m pytest

learn:  ## learning curves, many minutes
	$(PYTHON) -m pytest -m learn

torture:  ## processes that are killed again and again
	$(PYTHON) -m pytest -m torture

bench:  ## print figures, assert nothing
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(PYTHON) $$file; done

docs:  ## write docs/configs.md anew
	$(PYTHON) docs/configs.py
