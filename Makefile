# What a checkout can do. Every target sets up what it needs and is quick the second time.
#
#   make setup        .venv with the `forge` command and the development tools
#   make demo         the guided tour, in this terminal
#   make test         every test, and lint beside them; what .ci/run calls
#   make test-long    the tests of large objects, many rounds or examples alone, `make demo` as it is
#   make test-quick   the tests that need no walls, browser or program of others; two minutes
#   make bench        our figures beside those of comparable libraries; writes build/bench.json
#   make soak         ten minutes of sessions on runners that are killed; counts, and what was left; writes build/soak.json
#   make foreign      servers and clients of others that the tests meet, into build/foreign
#   make conformance  the MCP conformance suite against Forge, as server and as client; writes build/conformance.json
#   make agentdojo    AgentDojo's calls replayed through our path, under a stated policy; writes build/agentdojo.json
#   make local-model  twelve small tasks with a model on this machine, if one is served; writes build/local_model.json
#   make coverage     every test, and which lines and branches of src it ran, by package; writes build/coverage.json
#   make docs         the documentation as a site, into build/site; a link that leads nowhere is an error
#   make reference    writes the pages of docs/reference that come from the code
#   make pictures     draws the pictures of README and docs into docs/pictures, from real sessions; no API key
#   make lint         ruff, mypy --strict, the import contract, the types of the page
#
# PYTHON=python3.12 picks the interpreter, PYTEST_ARGS="-k zones" narrows the tests,
# BENCH_ARGS="--quick --only dispatch" the benchmarks, SOAK_MINUTES=3 SOAK_ARGS="--store sqlite" the soak.

PYTHON ?= python3
SOAK_MINUTES ?= 10
VENV   := .venv
BENCH  := build/bench-venv
DOJO   := build/agentdojo-venv
TSC    := build/foreign/lib/node_modules/typescript/bin/tsc
COVER  := build/coverage-venv
DOCS   := build/docs-venv

# System packages the tests need, by the names in scripts/system_packages.py.
# nginx, openssh-server and postgresql only in CI: their packages also start servers. Tests start their own, on free
# ports.
TEST_PARTS := bubblewrap chromium-headless-shell git $(if $(filter true,$(CI)),nginx openssh-server postgresql)

# Tests wait for programs, kernels and timers: on two fast cores four processes kept them 53 % busy, six 76 %, eight
# 92 %; on two slow ones eight took 967 s and four 999 s. Each process takes about half a gigabyte.
TEST_PROCESSES ?= $(shell cores=$$(nproc); echo $$((cores > 8 ? cores : 8)))

# A caller's settings must not reach the tests or distort a measurement. Without byte-code files every
# import is compiled anew, which makes start-up two to four times slower.
unexport PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS PYTEST_ADDOPTS MYPYPATH VIRTUAL_ENV
$(foreach name,$(filter FORGE_%,$(.VARIABLES)),$(eval unexport $(name)))

MAKEFLAGS += --no-print-directory

.PHONY: setup demo test test-parts pytest test-long test-quick foreign conformance bench soak agentdojo local-model coverage docs reference pictures lint format clean

setup: $(VENV)/.stamp
	@echo "ready: $(VENV)/bin/forge"

$(VENV)/.stamp: pyproject.toml scripts/make_venv.py
	@echo "setting up: what Forge and its tests need goes into $(VENV), once; a minute or two, most of it downloads"
	@began=$$(date +%s); $(PYTHON) scripts/make_venv.py $(VENV) --group dev && echo "$(VENV) took $$(( $$(date +%s) - began )) seconds"
	@touch $@

$(BENCH)/.stamp: pyproject.toml benchmarks/requirements.txt scripts/make_venv.py
	@$(PYTHON) scripts/make_venv.py $(BENCH) --requirements benchmarks/requirements.txt
	@touch $@

$(DOJO)/.stamp: pyproject.toml benchmarks/agentdojo/requirements.txt scripts/make_venv.py
	@$(PYTHON) scripts/make_venv.py $(DOJO) --requirements benchmarks/agentdojo/requirements.txt
	@touch $@

demo: $(VENV)/.stamp
	@$(VENV)/bin/python scripts/system_packages.py bubblewrap git
	@$(VENV)/bin/python -m examples.demo

# What is set up waits for the network and unpacks in turn; none of it needs another.
test:
	@$(MAKE) --jobs 4 $(VENV)/.stamp foreign test-parts
	@$(MAKE) --jobs 2 lint pytest

test-parts:
	@$(PYTHON) scripts/system_packages.py $(TEST_PARTS)

# Beside lint: one processor imports the tests while the other has the type checker.
pytest: $(VENV)/.stamp
	@$(VENV)/bin/python -m pytest --processes $(TEST_PROCESSES) $(PYTEST_ARGS) </dev/null

test-long: $(VENV)/.stamp $(DOCS)/.stamp
	@$(VENV)/bin/python scripts/system_packages.py $(TEST_PARTS)
	@$(VENV)/bin/python -m pytest --processes 2 --long --timeout 7200 $(PYTEST_ARGS) </dev/null

test-quick: $(VENV)/.stamp
	@$(VENV)/bin/python -m pytest --processes $(TEST_PROCESSES) -m "not slow and not walls and not browser and not foreign" $(PYTEST_ARGS) </dev/null

foreign:
	@$(PYTHON) scripts/foreign_programs.py

conformance: $(VENV)/.stamp foreign
	@$(VENV)/bin/python scripts/conformance.py $(CONFORMANCE_ARGS)

bench: $(BENCH)/.stamp
	@$(BENCH)/bin/python -m benchmarks $(BENCH_ARGS)

local-model: $(BENCH)/.stamp
	@$(BENCH)/bin/python -m benchmarks.local_model $(MODEL_ARGS)

# With PostgreSQL's own programs, on a free port: nothing of the machine's cluster is touched.
soak: $(VENV)/.stamp
	@$(VENV)/bin/python scripts/system_packages.py bubblewrap
	@$(VENV)/bin/python -m benchmarks.soak --minutes $(SOAK_MINUTES) $(SOAK_ARGS)

$(COVER)/.stamp: pyproject.toml scripts/make_venv.py
	@$(PYTHON) scripts/make_venv.py $(COVER) --group dev --group coverage
	@touch $@

# In an environment of its own: the tracer takes no part in `make test`. It sees the processes that run the tests, not
# those that the tests start.
coverage: $(COVER)/.stamp foreign
	@$(COVER)/bin/python scripts/system_packages.py $(TEST_PARTS)
	@rm -f build/.coverage*
	@$(COVER)/bin/python -m coverage run -m pytest --processes $(TEST_PROCESSES) $(PYTEST_ARGS) </dev/null
	@$(COVER)/bin/python -m coverage combine --quiet
	@$(COVER)/bin/python -m coverage json --quiet -o build/coverage.json
	@$(COVER)/bin/python scripts/coverage_table.py build/coverage.json

$(DOCS)/.stamp: pyproject.toml scripts/make_venv.py
	@$(PYTHON) scripts/make_venv.py $(DOCS) --group docs
	@touch $@

reference: $(VENV)/.stamp
	@$(VENV)/bin/python scripts/write_reference.py

pictures: $(VENV)/.stamp
	@$(VENV)/bin/python scripts/system_packages.py bubblewrap chromium-headless-shell
	@$(VENV)/bin/python scripts/draw_pictures.py $(PICTURES_ARGS)

docs: $(DOCS)/.stamp reference
	@$(DOCS)/bin/python scripts/build_site.py

agentdojo: $(DOJO)/.stamp
	@$(DOJO)/bin/python -m benchmarks.agentdojo

lint: $(VENV)/.stamp
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@if [ -f $(TSC) ]; then build/foreign/bin/node $(TSC) --project jsconfig.json; \
	  else echo "the types of the page are not checked: make foreign installs tsc"; fi

format: $(VENV)/.stamp
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
