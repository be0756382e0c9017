# One command each; all expect an active environment with `pip install -e '.[test]'`.

PYTHON ?= python

.PHONY: check test learn torture bench docs

check:  ## lint, format, types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy embodied/core embodied/checkpoint embodied/replay embodied/run/driver.py dreamerv3/losses.py

test:  ## everything but the learning curves
	$(PYTHON) -m pytest

learn:  ## learning curves, many minutes
	$(PYTHON) -m pytest -m learn

torture:  ## processes that are killed again and again
	$(PYTHON) -m pytest -m torture

bench:  ## print figures, assert nothing
	@set -e; for file in $$(grep -l __main__ benchmarks/*.py | grep -v compare.py); do \
	  echo "== $$file"; $(PYTHON) $$file; done
	@set -e; for words in 'train.py --kind image' 'policy.py --kind image' \
	    'startup.py --kind image' 'startup.py --run' 'train.py --size size200m --count'; do \
	  echo "== benchmarks/$$words"; $(PYTHON) benchmarks/$$words; done

docs:  ## write docs/configs.md anew
	$(PYTHON) docs/configs.py
