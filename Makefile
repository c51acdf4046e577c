# Two commands on a fresh machine: make demo, make test.  Both need only Python 3.11+, its venv module and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := setup.cfg pyproject.toml
# Four processes for two cores, for many tests wait (-n 0 in ARGS: all in one).  Each begins with a run of neighbouring files, which share clusters, and takes over from another at its end.
PARALLEL := -n auto --maxprocesses 8 --dist worksteal
SUITE = $(BIN)/python -m pytest $(PARALLEL) -m 'not interop and not long'

# What takes longest of the suite for one thing that it holds has targets of its own, so that `make test` stays short.
PROCESSES := tests/processes tests/bench tests/pipeline tests/testing tests/watched tests/security/test_secrets.py tests/tools/test_watching.py $(addprefix tests/tools/commands/,test_guarded_zookeeper.py test_rebuild_online.py test_set_back.py)
# What is run as users run it, and what is killed, or meets others, at each step: half of the CPU time of all.
COMMANDS := tests/tools
LOGS := $(addprefix tests/log/,clusters machine mirror reader store streams upkeep)
RULES := $(wildcard tests/test_tidy*.py)
# Where a text of the repository must be what another one says: pages and samples made from code, the lines that mutants of the simulator name.  In the suite, too, and with lint, for one line of a page or of code breaks them.
AGREED := tests/tools/test_manual.py tests/tools/test_faces.py tests/conf/test_sample_files.py tests/bench/test_page.py tests/simulation/test_mutants.py::test_the_guard_stands_where_its_mutant_takes_it_away
CONSOLE := $(addprefix tests/console/,test_daemon.py test_local.py test_large.py browser)
APART := $(PROCESSES) $(COMMANDS) $(LOGS) $(CONSOLE) $(RULES) tests/packages tests/upgrade tests/containers tests/manual tests/spark tests/declarative tests/simulation tests/crash tests/fuzz

# A file system in memory for the directories of tests, where there is room: nearly all of them sync, and a disk would take a third of their time for that.
RAM = $(shell awk '$$2 == "/dev/shm" && $$4 !~ /noexec/' /proc/mounts 2>/dev/null | grep -q . && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 2000000 { print "/dev/shm" }')
QUICKLY = $(and $(RAM),TMPDIR=$${TMPDIR:-$(RAM)}) $(SUITE) -k 'not etcd'

# Which Apache BookKeeper interop and bench run beside, e.g. make interop BOOKKEEPER=4.17.3; the newest if not given.
export QUIRE_PEER_VERSION ?= $(BOOKKEEPER)

# The suite starts hundreds of processes; each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test commands logs newest upgrade processes console etcd spark declarative containers pipeline capture messages lint fuzz simulate mutants crash survive soak interop bench growth bench-here growth-here scale sizes manual manual-runs packages release reference clean

help:
	@echo "make demo [FILE=path] [METADATA=etcd]  append a real file to a ledger while a bookie is killed, read it back, compare"
	@echo "make test [ARGS=...]    the test suite"
	@echo "make commands           the commands and daemons as users run them, in processes of their own, and the clusters of quire local [ARGS=...]"
	@echo "make logs               readers, replicas, cursors, retention, upkeep, copies and moves of logs, killed at each of their steps [ARGS=...]"
	@echo "make newest             the suite, commands and logs on the newest Python that is here [ARGS=...]"
	@echo "make processes          SIGKILL, SIGSTOP and cut connections for real processes, offload and jobs, guarded and damaged clusters, the benchmarks: minutes"
	@echo "make console            the console's pages in headless Chromium, over a live cluster, a killed bookie, an empty cluster and a million ledgers; the manual's pictures of it [ARGS=...]"
	@echo "make etcd               the metadata's contract with a real etcd, members killed, clients asleep; QUIRE_REQUIRE=etcd installs Debian's [ARGS=...]"
	@echo "make upgrade            the release before and this one in one cluster, process by process, there and back: minutes"
	@echo "make spark              ledgers and logs as tables of real Spark sessions: minutes"
	@echo "make declarative        the example of Spark's Declarative Pipelines: two minutes, 230 MB of packages more"
	@echo "make pipeline           a worked example: orders of a shop as JSON through logs and Spark into a table and a page with a chart; [ARGS=--serve]"
	@echo "make capture            a worked example: a table's changes through a log into copies, exactly once, whatever is killed [ARGS='--postgres URI']"
	@echo "make messages           a worked example: a RocketMQ store directory in, by queue, key and id, and out again, byte for byte"
	@echo "make manual-runs        every Python block of the manual and every example of the commands, as shown, on fresh clusters: two minutes"
	@echo "make packages           wheel and sdist: what is in them, the same bytes twice, the wheel in an environment of its own: minutes"
	@echo "make containers         what runs in Docker, with one of its own for root where none answers; QUIRE_REQUIRE=docker installs Debian's: minutes"
	@echo "make release            what a release consists of, in dist/: wheel, sdist, list of changes, lock of dependencies, SBOM, sums"
	@echo "make reference          what programs call, from its docstrings, as pages in dist/reference"
	@echo "make lint               ruff, strict mypy, and the rules of the house for sources and pages"
	@echo "make fuzz [SECONDS=60]  each decoder of foreign bytes, so long each, after its corpus: what it must not do with any input; [ARGS='NAME …'] [ARGS='--drawn 4'] [ARGS='--grow']"
	@echo "make simulate [SECONDS=600]  a simulated cluster under faults, from fresh seeds, after the tests of the simulator; [ARGS='--seed N --trace'] one history again"
	@echo "make mutants            guards taken away in turn: the simulator must catch each"
	@echo "make crash              every crash point and many flipped bits of a bookie's files: minutes"
	@echo "make survive            the same under load, three hundred rounds: many minutes"
	@echo "make soak [HOURS=2]     a cluster of many processes under faults for hours: nothing is lost, and nothing grows; [MINUTES=2] with a smaller one [SEED=n] [ARGS=...]"
	@echo "make interop            the suite against a real Apache BookKeeper (needs a JDK and Maven) [BOOKKEEPER=4.17.3]"
	@echo "make bench              speed beside the yardstick and, where Maven is, beside Apache BookKeeper [BOOKKEEPER=4.17.3]"
	@echo "make scale [SEED=1]     a thousand bookies and a million ledgers in virtual time: racks lost, drains, restarts (docs/scale.md): minutes; [ARGS='--small'] [ARGS='--only rack']"
	@echo "make growth             how figures change as ledgers, entries, clients, sizes, windows and sync times grow: a quarter of an hour"
	@echo "make manual             docs/commands.md, docs/keys.md, tables of contents, conf/samples and the blocking faces again, after a change of an option, a help text, a heading or an asyncio face"
	@echo "make sizes              lines per file and function, docstrings, test to code ratio"

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools
	@touch $@

$(VENV)/.run: $(VENV)/.made $(SETUP)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.made $(SETUP)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/.run

# The archive of the classes of a ZooKeeper server, which so starts in half the time.
$(VENV)/.java: $(VENV)/.test
	$(BIN)/python -m tests.tools.java
	@touch $@

$(VENV)/.pipeline: $(VENV)/.made $(SETUP)
	$(BIN)/python -m pip install --quiet --editable '.[example]'
	@touch $@ $(VENV)/.run

$(VENV)/.capture: $(VENV)/.made $(SETUP)
	$(BIN)/python -m pip install --quiet --editable '.[capture]'
	@touch $@ $(VENV)/.run

$(VENV)/.fuzz: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	@touch $@

$(VENV)/.browser: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --editable '.[browser]'
	@touch $@

$(VENV)/.containers: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --editable '.[containers]'
	@touch $@

$(VENV)/.declarative: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --editable '.[declarative]'
	@touch $@

$(VENV)/.release: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	@touch $@

manual-runs: $(VENV)/.test
	$(BIN)/python -m pytest tests/manual $(ARGS)

packages: $(VENV)/.release
	$(BIN)/python -m pytest tests/packages $(ARGS)

# What the image is built of: a Docker that the target starts has no network but its own.
build/containers/.wheels: $(VENV)/.containers Dockerfile
	rm -rf build/containers/wheels
	$(BIN)/python -m pip wheel --quiet --wheel-dir build/containers/wheels '.[tls,zstd,console]' dumb-init 'setuptools>=77'
	rm build/containers/wheels/quire-*
	@touch $@

containers: build/containers/.wheels
	$(BIN)/python -m tests.containers.engine $(BIN)/python -m pytest -m "not long" tests/containers $(ARGS)

release: $(VENV)/.release
	$(BIN)/python -m release

reference: $(VENV)/.release
	$(BIN)/python -m release.reference

demo: $(VENV)/.run
	$(BIN)/quire demo $(FILE) $(if $(METADATA),--metadata $(METADATA))

# What holds for a real etcd, alone and of three members.
etcd: $(VENV)/.test
	@case ",$(QUIRE_REQUIRE)," in *,etcd,*) command -v etcd > /dev/null || { test $$(id -u) = 0 && apt-get update -q && apt-get install -y -q --no-install-recommends etcd-server; };; esac
	$(SUITE) -rs -k etcd tests/metadata tests/bookie/upkeep tests/tools/local_cluster tests/tools/commands/test_demo.py $(ARGS)

# Each process of the suite imports all; in a fresh clone each would compile all, too.
test: $(VENV)/.java
	@$(BIN)/python -m compileall -q -j 0 -x '/[.]' . || true
	$(QUICKLY) $(APART:%=--ignore=%) $(ARGS)

commands: $(VENV)/.java
	$(QUICKLY) $(COMMANDS) $(PROCESSES:%=--ignore=%) $(ARGS)

logs: $(VENV)/.java
	$(QUICKLY) $(LOGS) $(ARGS)

# The newest Python of this machine that is not the one above; in an environment of its own.
NEWEST = $(shell for minor in 14 13 12; do for python in python3.$$minor $(HOME)/.pyenv/versions/3.$$minor.*/bin/python3; do $$python -c 'import ensurepip, sys; print(sys.executable)' 2>/dev/null && exit; done; done)
newest:
	@$(if $(NEWEST),$(MAKE) test commands logs VENV=.venv-newest PYTHON=$(NEWEST) ARGS='$(ARGS)',echo "skipped: no Python newer than 3.11 is here")

processes: $(VENV)/.java
	$(SUITE) $(PROCESSES) $(ARGS)

# Debian's Chromium, where it is required and can be installed.
console: $(VENV)/.browser
	@case ",$(QUIRE_REQUIRE)," in *,chromium,*) command -v chromium > /dev/null || { test $$(id -u) = 0 && apt-get update -q && apt-get install -y -q --no-install-recommends chromium; };; esac
	$(BIN)/python -m pytest -rs -m 'not interop and not long' $(CONSOLE) $(ARGS)

spark: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist loadgroup tests/spark $(ARGS)

# The release before, made from its commit, and this one in one cluster, process by process.
upgrade: $(VENV)/.java
	$(BIN)/python -m pytest tests/upgrade $(ARGS)

declarative: $(VENV)/.declarative
	$(BIN)/python -m pytest tests/declarative $(ARGS)

pipeline: $(VENV)/.pipeline
	$(BIN)/python docs/examples/shop/pipeline.py $(ARGS)

# A table that changes all the time, and what publishes and copies its changes killed again and again.
capture: $(VENV)/.capture
	$(BIN)/python docs/examples/capture $(ARGS)

# A store directory that a real RocketMQ wrote, in, searched, and out again.
messages: $(VENV)/.run
	$(BIN)/python docs/examples/messages.py $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(RULES) $(AGREED)

fuzz: $(VENV)/.fuzz
	$(SUITE) tests/fuzz
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(ARGS)

# With ARGS, e.g. a seed, that alone; without, the tests of the simulator first: it must miss each guard that is taken away, and keep its fixed seeds.
simulate: $(VENV)/.test
	$(if $(ARGS),,$(SUITE) tests/simulation)
	$(BIN)/python -m tests.simulation $(or $(ARGS),--seconds $(or $(SECONDS),600))

mutants: $(VENV)/.test
	$(BIN)/python -m tests.simulation --mutants

crash: $(VENV)/.test
	timeout 1800 $(BIN)/python -m pytest $(PARALLEL) tests/crash $(ARGS)

survive: $(VENV)/.test
	$(BIN)/python -m pytest -m long tests/processes tests/log tests/bookie tests/messages tests/tools/commands/pulsar $(ARGS)

# For hours with 24 bookies and 200 logs; for minutes with fewer, unless ARGS says otherwise.
soak: $(VENV)/.java
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES) --bookies 6 --recoveries 2 --workers 3 --logs 20 --rate 15 --every 5,--minutes $$(awk 'BEGIN { print 60 * $(or $(HOURS),2) }')) $(if $(SEED),--seed $(SEED)) $(ARGS)

interop: $(VENV)/.containers
	$(BIN)/python -m pytest -m interop $(ARGS)

# Figures are those of an interpreter that was built with optimisations, where one is here; in an environment of its own where it is not the one above.
OPTIMISED = $(shell for python in $(PYTHON) /usr/bin/python3 /usr/local/bin/python3; do $$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && $$python conf/interpreter.py > /dev/null && echo $$python && exit; done)
measured = @$(if $(OPTIMISED),$(MAKE) --no-print-directory $1 PYTHON=$(OPTIMISED) $(if $(filter-out $(PYTHON),$(OPTIMISED)),VENV=.venv-optimised) ARGS='$(ARGS)',echo "no Python that was built with optimisations is here (on Debian: apt-get install python3-venv): figures are those of a slower one" && $(MAKE) --no-print-directory $1 ARGS='$(ARGS)')

bench:
	$(call measured,bench-here)

growth:
	$(call measured,growth-here)

bench-here: $(VENV)/.test
	$(BIN)/python -m bench $(ARGS)

growth-here: $(VENV)/.test
	$(BIN)/python -m bench.growth $(ARGS)

scale: $(VENV)/.test
	$(BIN)/python -m tests.scale --seed $(or $(SEED),1) $(ARGS)

sizes: $(VENV)/.test
	$(BIN)/python bench/sizes.py

manual: $(VENV)/.test
	$(BIN)/python -m quire.tools.faces
	$(BIN)/python -m quire.tools.manual > docs/commands.md
	$(BIN)/python -m quire.tools.manual keys > docs/keys.md
	$(BIN)/python -m quire.tools.manual contents
	$(BIN)/python -m quire.conf.sample_files
	$(BIN)/python -m quire.tools.watching

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache
