# The developer's manual: `make demo` to look at it, `make lint test` before a push.
PORT ?= 8000
ARGS ?=
PY := .venv/bin/python
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"
export PATH := $(CURDIR)/.venv/bin:$(PATH)
.PHONY: setup vendor demo test soak lint audit bench screenshots lock services-up services-down kube-up kube-down schema client clean always

MIGRATED := var/migrated.sqlite3
KERNELS := planner/__pycache__/all-compiled
setup: ; deploy/bootstrap-python && $(MAKE) --no-print-directory vendor $(KERNELS)
# The planner's kernels, or requests would wait for them: a minute and a half from nothing, seconds where no kernel has changed.
# The file names another, which is gone when somebody has emptied the cache.
$(KERNELS): $(wildcard planner/*.py planner/*/*.py) $(if $(wildcard $(shell cat $(KERNELS) 2>/dev/null)),,always) ; mkdir -p $(@D) && $(PY) -m planner.compile >$@
always: ;
# Libraries, fonts and icons of the pages, into static/vendor
vendor: ; $(PY) deploy/front-end
# A company at work; EMPTY=1: nothing has happened yet; FRESH=1: forget what earlier runs left behind; OIDC=1: with an identity provider
demo: setup $(MIGRATED) ; $(PY) manage.py demo --port $(PORT) $(if $(EMPTY),--empty) $(if $(FRESH),--fresh) $(if $(OIDC),--oidc)
# Migrating a new database takes as long as all the rest of the demo's start.
$(MIGRATED): $(wildcard */migrations/*.py */triggers.py) ; mkdir -p $(@D) && rm -f $@ $@.part && EGS_DATABASE_URL=sqlite:///$(CURDIR)/$@.part $(PY) manage.py migrate --verbosity 0 && mv $@.part $@
# One test: make test ARGS="-k drain"
test: setup ; deploy/run-tests $(ARGS)
# All seeds, races and examples, everything on both databases, every version of Kubernetes: hours
soak: setup ; deploy/run-tests --soak $(ARGS)
bench: setup ; $(PY) -m bench
# Every page in both themes, at the desk and on a phone, into var/screenshots
screenshots: setup ; $(PY) -m tests.browser.support.screenshots

lint: setup
	ruff check . && ruff format --check .
	mypy .
	lint-imports
	if find templates -name '*.html' 2>/dev/null | grep -q .; then djlint --lint templates; fi
	$(PY) manage.py makemigrations --check --dry-run
	$(PY) manage.py spectacular --fail-on-warn --validate --file /dev/null

# Known faults: of our code by bandit, of libraries by pip-audit, which asks https://pypi.org/pypi/NAME/VERSION/json of each.
UNAUDITED = "pip-audit found a fault, or https://pypi.org/pypi had no answer for a package: then its faults are unknown."
audit: setup
	bandit --quiet --recursive --configfile pyproject.toml .
	pip-audit --strict --disable-pip $(foreach name,dev node go,--requirement requirements/$(name).lock) || { echo $(UNAUDITED) >&2; exit 1; }

# After a change of requirements/*.in; newer versions of everything: make lock ARGS=--upgrade
# In this order: each takes the versions of those before it.
lock: setup ; cd requirements && for name in base agent dev uv node go; do $(LOCK) $(ARGS) $$name.in -o $$name.lock || exit; done
# What egs_client has from the API, after a change of it
client: setup ; $(PY) manage.py egs_client
schema: setup ; mkdir -p var && $(PY) manage.py spectacular --validate --file var/openapi.yaml

services-up: ; deploy/services up
services-down: ; deploy/services down
# A real Kubernetes control plane; two: make kube-up ARGS="east west". Prints the kubeconfigs' paths and nothing else.
kube-up: ; @deploy/kube up $(ARGS)
kube-down: ; deploy/kube down $(ARGS)

# var/ stays: it holds data.
clean: services-down kube-down ; rm -rf .venv node_modules static/vendor .*_cache .hypothesis && find . -name __pycache__ -prune -exec rm -rf {} +
