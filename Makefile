# Each target sets up what it needs on a fresh machine (a virtual environment, the package with its extras), as an ordinary
# user. A stamp says that a set-up is done, so a second run installs nothing and works offline.
#
#   PYTHON=/path/to/python3.12   the interpreter to build .venv with (3.11 or newer; looked for when not given)
#   TESTS="-k words"             more arguments for pytest
#   BENCH="chat growth"          what make bench runs (default: everything; .venv/bin/python -m tests.bench --help)
#   SOAK="--requests 200000"    how long make soak goes on, and with what (--help)
#   ON_POSTGRES="tests/memory"   what make test-postgres runs (default: the memory, the contracts, e2e)
#   OLDEST=/usr/bin/python3     the interpreter of make test-oldest
#   WORKERS=4                    test processes (default: two more than cores, since much of the suite waits)

VENV := .venv
BIN := $(VENV)/bin
# Not bin/python, which is a link to a file of another age.
MADE := $(VENV)/pyvenv.cfg
ON_POSTGRES ?= tests/memory tests/contract tests/e2e
OLDEST ?= /usr/bin/python3
# What reads bytes, which the oldest Python has read wrongly: the pure packages, and HTTP on both sides.
# The generated streams are played by `make test` alone: they take as long as a sixth of the rest.
ON_OLDEST ?= tests/test_patterns.py tests/gateway/wire tests/gateway/apis --ignore=tests/gateway/apis/test_odd_streams.py tests/gateway/http tests/memory/core tests/memory/conversation \
  tests/memory/context tests/memory/search tests/memory/formats tests/e2e/wire
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
CLIENTS := .clients/openai2/.done .clients/openai3/.done .clients/anthropic2/.done .clients/letta1_12/.done .clients/letta1_1/.done tests/clients/node_modules/.done
PURE := gateway/wire/*,gateway/apis/translation/*,memory/core/*,memory/conversation/*,memory/context/*,memory/search/*
CANDIDATES := $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3)

.PHONY: help demo test test-oldest test-postgres test-pgbouncer test-clients clients lint format coverage bench soak screenshots clean
.DEFAULT_GOAL := help

help:
	@echo "make demo          a two-session conversation with memory, then the gateway on port 8080"
	@echo "make test          the tests"
	@echo "make test-oldest   the tests of what reads bytes, on Debian's own Python; OLDEST=... names another"
	@echo "make test-postgres the tests of the store and of the gateway, on a Postgres that they start"
	@echo "make test-pgbouncer the same behind PgBouncer in transaction mode"
	@echo "make test-clients  the SDKs and frameworks of docs/compatibility.md against a live gateway"
	@echo "make lint          ruff and mypy"
	@echo "make format        formats the code and applies safe fixes"
	@echo "make coverage      the tests under coverage: 95 % overall, 100 % of the pure packages"
	@echo "make bench         what memory costs and what it finds, ten minutes; BENCH=\"chat growth\" chooses"
	@echo "make soak          20,000 streams, a third left early: does memory grow?"
	@echo "make screenshots   renews the README's pictures and recordings; needs Chromium and npm"
	@echo "make clean         remove the virtual environment and its stamps"

demo: .setup-demo
	$(BIN)/mnemogate demo

test: .setup-test
	$(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

test-oldest: .oldest/.done
	.oldest/bin/python -m pytest -o cache_dir=.oldest/cache --hypothesis-profile=again -n $(WORKERS) $(ON_OLDEST) $(TESTS)

# Without what is about SQLite's own files, threads and costs: tests/postgres.args names it.
test-postgres: .setup-test
	MNEMOGATE_TEST_STORE=postgres $(BIN)/python -m pytest -n $(WORKERS) $(ON_POSTGRES) @tests/postgres.args $(TESTS)

# The same behind PgBouncer in transaction mode, without what has servers of its own or ends their sessions.
test-pgbouncer: .setup-test
	MNEMOGATE_TEST_STORE=pgbouncer $(BIN)/python -m pytest -n $(WORKERS) $(ON_POSTGRES) @tests/postgres.args @tests/pgbouncer.args $(TESTS)

test-clients: .setup-test clients
	$(BIN)/python -m pytest -n $(WORKERS) tests/clients $(TESTS)

clients: $(CLIENTS)

lint: .setup-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .setup-lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# All processes: pytest's workers, and the gateways and commands that tests start.
coverage: .setup-test
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=95 --skip-covered
	$(BIN)/coverage report --fail-under=100 --skip-covered --include='$(PURE)'

bench: .setup-test
	$(BIN)/python -m tests.bench $(BENCH)

soak: .setup-test
	$(BIN)/python -m tests.bench.soak $(SOAK)

screenshots: .setup-test clients
	$(BIN)/python -m tests.handover
	$(BIN)/python -m tests.recording
	$(BIN)/python -m tests.screenshots

clean:
	rm -rf $(VENV) .oldest .clients tests/clients/node_modules .setup-demo .setup-test .setup-lint

# Each holds what the one before it holds, and stamps it too. (mypy reads the types of whatever the package imports.)
.setup-demo: EXTRAS = demo
.setup-demo: TOLD = about 190 MB, a minute or two
.setup-test: TOLD = with all stores and the test tools, about 800 MB, some minutes
.setup-lint: TOLD = with all stores and the linters, about 900 MB, some minutes
.setup-test: EXTRAS = all,demo,test
.setup-test: ALSO = .setup-demo
.setup-lint: EXTRAS = all,demo,test,lint
.setup-lint: ALSO = .setup-demo .setup-test

.setup-demo .setup-test .setup-lint: pyproject.toml $(MADE)
	@echo "Installing Mnemogate and what it needs for this ($(EXTRAS)) into $(VENV), once: $(TOLD)."
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -e '.[$(EXTRAS)]'
	@touch $@ $(ALSO)

# Without the extras and the tools that those tests do not use.
.oldest/.done: pyproject.toml tests/oldest.txt
	$(OLDEST) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --disable-pip-version-check --quiet -e . -r tests/oldest.txt
	@touch $@

# The clients that cannot live together have environments of their own; without node, those for it wait until it is there.
.clients/%/.done: tests/clients/%.txt $(MADE)
	$(BIN)/python -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --disable-pip-version-check --quiet --no-compile -r $<
	@touch $@

tests/clients/node_modules/.done: tests/clients/package.json tests/clients/package-lock.json
	@if command -v npm >/dev/null; then \
	  npm ci --prefix tests/clients --no-fund --no-audit --loglevel=error && touch $@; \
	else \
	  echo "npm is missing, so the clients for node are skipped (Debian, Ubuntu: apt-get install nodejs npm)."; \
	fi

# A folder that python3 -m venv left half-made (no ensurepip) is removed again, so that the next run starts clean.
$(MADE):
	@found=; \
	for p in $(CANDIDATES); do \
	  if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$p"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Mnemogate needs Python 3.11 or newer, and none of these is: $(CANDIDATES)." >&2; \
	  echo "Install it (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.12)," >&2; \
	  echo "or name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$found ($$("$$found" -V 2>&1))"; \
	if ! "$$found" -m venv $(VENV); then \
	  rm -rf $(VENV); \
	  echo "$$found cannot make a virtual environment." >&2; \
	  echo "Install its venv package (Debian, Ubuntu: apt-get install python3-venv) and run make again." >&2; exit 1; \
	fi
