# make run    build, and bring up the demo: a server, an endpoint, commands to try
# make console  the page of the web console alone (part of make build)
# make screenshots  docs/images: the console, with real MCP servers behind it
# make test   everything a change must pass; installs what it needs on Debian
# make test-agents  installs the programs of task agents, and tries the server with them
# make lint   gofumpt and golangci-lint (their versions: tools/go.mod), and commit subjects
# make house  the figures of the repository's structure, and their limits
# make bench  the figures of docs/performance.md, measured on this machine in under ten minutes
# make soak   the long tests
# make fuzz   every fuzz target below FUZZIN (.) for FUZZTIME (30s), one after the other
# make release   dist/: what is given to others of this commit (docs/install.md)
# make vuln   known vulnerabilities, where the database can be reached

SHELL    := /bin/bash
GO       ?= go
TOOLS    := bin/tools
CLIS     := $(CURDIR)/interop/clis/node_modules/.bin
VERSION  ?= $(or $(patsubst v%,%,$(shell git describe --exact-match --match 'v[0-9]*' HEAD 2>/dev/null)),0.1.0-dev)
FUZZTIME ?= 30s
FUZZIN   ?= .
COMMIT   := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS  := -s -w -X main.buildVersion=$(VERSION) -X main.buildCommit=$(COMMIT)
SOURCES  := $(shell git ls-files -co --exclude-standard '*.go' 2>/dev/null)

.PHONY: run build console screenshots test test-agents lint house bench soak fuzz vuln release deps interop-deps agents-deps clean
.DEFAULT_GOAL := build

build: console
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/junctor ./cmd/junctor

# The page of the web console, from internal/console/web/src. Without npm the server is built
# without it, and says how to get it.
CONSOLE := internal/console/web
console:
	@if ! command -v npm >/dev/null; then echo "npm is not here, so this build has no web console"; exit 0; fi; \
	if [ ! -e $(CONSOLE)/dist/index.html ] || [ -n "$$(find $(CONSOLE)/src $(CONSOLE)/package-lock.json -newer $(CONSOLE)/dist/index.html)" ]; then \
	  if [ ! -e $(CONSOLE)/node_modules/.package-lock.json ] || [ $(CONSOLE)/package-lock.json -nt $(CONSOLE)/node_modules/.package-lock.json ]; then \
	    npm ci --prefix $(CONSOLE) --ignore-scripts --no-audit --no-fund --silent || { echo "npm cannot fetch the console's parts, so this build has no web console"; exit 0; }; \
	    touch $(CONSOLE)/node_modules/.package-lock.json; \
	  fi; \
	  $(GO) -C tools run -buildvcs=false ./bundle $(CURDIR)/$(CONSOLE); \
	fi

run: build
	./bin/junctor serve --demo

# The pictures of README.md and docs/console.md.
screenshots: build interop-deps
	node interop/console/screenshots.mjs bin/junctor docs/images

# What the tests need and a fresh Debian may lack. Installing needs root; without
# it the missing name is said.
deps:
	@missing=""; for tool in gcc git curl; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing:$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing $$(echo "$$missing" | grep -q gcc && echo libc6-dev) >/dev/null; \
	fi
	@missing=""; ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	ls /usr/lib/chromium/chromium /opt/google/chrome/chrome 2>/dev/null | grep -q . || missing="$$missing chromium fonts-liberation"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing:$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null || echo "SKIPPED: the tests that need$$missing, which cannot be installed"; \
	elif [ -n "$$missing" ]; then echo "SKIPPED: the tests that need$$missing, which root could install"; fi

interop-deps:
	@if command -v npm >/dev/null; then npm ci --prefix interop --no-audit --no-fund --silent; \
	else echo "SKIPPED: npm is not here, so the MCP clients from npm are not tried"; fi
	@if ! /usr/bin/python3 -c 'import cryptography, websockets' 2>/dev/null || ! command -v mypy >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing: mypy python3-cryptography python3-websockets"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mypy python3 python3-cryptography python3-websockets >/dev/null; \
	  fi || true; \
	  /usr/bin/python3 -c 'import cryptography, websockets' 2>/dev/null || echo "SKIPPED: the tests of the Python SDK, which need python3 with cryptography and websockets"; \
	fi

# Without cgo, as the program is released; only the race detector needs it. The linter and all other
# steps share what was compiled then.
# The race detector leaves out what starts other programs or reads all sources, and does little
# itself, the SQLite that was translated from C, searches by regular expressions without a goroutine, and
# tests named AtScale: it makes them several times
# slower. It would also make each test binary sleep for a second at its end. What vet finds, the linter
# has found. One package more than
# there are processors runs at a time, because many wait for programs.
# Of the others each has a processor: beside more, real coding agents miss what they wait for.
# So the coding agents come last. Of the packages with the race detector, those that take longest begin first.
PLAIN := ./secret ./cmd/junctor ./internal/testkit/attack ./internal/platform/sandbox ./internal/testkit/archtest ./internal/testkit/mutation ./interop ./interop/console ./interop/clis
LONGEST := ./internal/server ./internal/taskagents/workspace ./internal/testkit/scenario
RACE := -race '-gcflags=modernc.org/...=-race=false'
test: export CGO_ENABLED := 0
test: export GORACE := atexit_sleep_ms=0
test: deps console
	@$(MAKE) --no-print-directory -j3 lint interop-deps agents-deps
	CGO_ENABLED=1 $(GO) test -vet=off $(RACE) -p $$(( $$(nproc) + 1 )) -timeout 60m $(LONGEST) $$($(GO) list ./... | grep -v -x -F "$$($(GO) list $(PLAIN))")
	@if command -v npm >/dev/null; then export INTEROP_REQUIRED=1; fi; \
	TASK_AGENTS_CLIS=$(CLIS) TASK_AGENTS_SHORT=1 $(GO) test -vet=off -count=1 -timeout 30m $(PLAIN)
	ISOLATION_POLICIES=10000 $(GO) test -timeout 10m -run AtScale ./internal/serve/mcpserve ./internal/core/catalog/compile ./internal/server
	$(GO) -C tools/release test -count=1 -timeout 10m ./...
	$(GO) -C tools/charttest test -count=1 -timeout 10m ./...
	@if command -v npm >/dev/null; then export INTEROP_REQUIRED=1; fi; $(GO) -C tools/idp test -count=1 -timeout 10m ./...

# The programs of task agents, in the versions of the lock file. One that cannot be had is
# left out, and its tests say so.
agents-deps:
	@if command -v npm >/dev/null; then \
	  npm install --prefix interop/clis --no-save --no-audit --no-fund --silent || true; \
	  for name in claude codex gemini qwen opencode pi; do test -e $(CLIS)/$$name || echo "SKIPPED: $$name cannot be installed, so it is not tried as a task agent"; done; \
	else echo "SKIPPED: npm is not here, so the programs of task agents are not tried"; fi

test-agents: agents-deps
	TASK_AGENTS_CLIS=$(CLIS) $(GO) test -count=1 -timeout 30m -v ./interop/clis

lint: bin/tools/golangci-lint bin/tools/gofumpt
	@unformatted=$$($(TOOLS)/gofumpt -l $(SOURCES)); \
	if [ -n "$$unformatted" ]; then echo "not formatted (gofumpt -w):"; echo "$$unformatted"; exit 1; fi
	GOGC=400 GOMEMLIMIT=4GiB $(TOOLS)/golangci-lint run ./...
	@tsc=$(CONSOLE)/node_modules/.bin/tsc; if [ -e $$tsc ]; then $$tsc --noEmit -p $(CONSOLE); else echo "SKIPPED: the console's types, which npm could fetch"; fi
	@git log --no-merges -n 20 --format=%s 2>/dev/null | awk '{ \
	  if (length($$0) > 72) { print "commit subject longer than 72 characters: " $$0; bad = 1 } \
	  if ($$0 !~ /^[a-z][a-z0-9.\/_-]*: [a-z]/) { print "commit subject is not \"area: imperative object\": " $$0; bad = 1 } \
	} END { exit bad }'

house:
	$(GO) test -count=1 -v -run '^TestHouse$$' ./internal/testkit/archtest

bin/tools/%: tools/go.mod
	@mkdir -p $(TOOLS)
	$(GO) -C tools build -buildvcs=false -o $(CURDIR)/$@ $$($(GO) -C tools list -f '{{.ImportPath}}' tool | grep '/$*$$')

vuln:
	@mkdir -p $(TOOLS)
	$(GO) -C tools build -buildvcs=false -o $(CURDIR)/$(TOOLS)/govulncheck golang.org/x/vuln/cmd/govulncheck
	$(TOOLS)/govulncheck ./... || echo "govulncheck found something, or its database is out of reach"

bench: build
	$(GO) run ./bench

# MINISIGN_KEY_FILE=FILE signs; DOWNLOAD_URL=URL is where the Homebrew formula gets archives.
release:
	$(if $(MINISIGN_KEY_FILE),MINISIGN_KEY_FILE=$(abspath $(MINISIGN_KEY_FILE))) $(GO) run -buildvcs=false ./release -version $(VERSION) -out dist

soak:
	$(GO) test -tags soak -timeout 180m -run Soak ./...
	MUTATE=1 $(GO) test -count=1 -timeout 30m ./internal/testkit/mutation

# go test takes one fuzz target of one package at a time.
fuzz:
	@grep -rnoE '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' $(FUZZIN) | sed -E 's|^(\./)?(.*)/[^/]*:[0-9]+:func (.*)$$|\2 \3|' | sort -u | \
	while read -r dir name; do \
	  echo "== $$dir $$name"; \
	  $(GO) test "./$$dir" -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x -parallel 1 </dev/null || exit 1; \
	done

clean:
	rm -rf bin dist
