# nsbox: build, try and test. `make demo` and `make test` work on a fresh
# Debian 12 or Ubuntu for root or a user with sudo; tests/setup.sh installs
# what is missing and nothing else.

VERSION ?= 0.1.0-dev
BIN     := bin/nsbox
GO      ?= $(shell sh tests/setup.sh go)
# A Go older than go.mod asks for fetches the right one; one that is new enough is used as it is.
export GOTOOLCHAIN ?= auto
# A checkout owned by somebody else must build too, and the same source must give the same bytes.
export GOFLAGS += -buildvcs=false

# netgo and osusergo keep the C resolver, which a static program cannot use, out of the binary.
TAGS    := netgo,osusergo
LDFLAGS := -s -w -linkmode external -extldflags "-static" -X main.version=$(VERSION)
STATIC  := -tags $(TAGS) -ldflags '-linkmode external -extldflags "-static"'

# The packages whose tests write documents and golden files.
GENERATED := ./tests/conformance ./launcher ./launcher/reason ./cmd/nsbox $(shell grep -rl '"update"' --include='*_test.go' nsexec seccompgen launcher/unpack 2>/dev/null | xargs -r -n 1 dirname | sort -u | sed 's|^|./|')

.PHONY: all build demo test test-vm test-go conformance golden fuzz bench lint docs clean setup setup-demo setup-test stage platform

all: build

platform:
	@test "$$(uname -s) $$(uname -m)" = "Linux x86_64" || \
	  { echo "nsbox builds on linux/amd64 only; this is $$(uname -s) $$(uname -m)" >&2; exit 1; }
	@test "$${GOARCH:-amd64}" = amd64 && test "$${GOOS:-linux}" = linux || \
	  { echo "nsbox builds for linux/amd64 only; GOOS=$${GOOS:-linux} GOARCH=$${GOARCH:-amd64} was asked for" >&2; exit 1; }

setup: platform
	@sh tests/setup.sh build

setup-demo: platform
	@sh tests/setup.sh demo

setup-test: platform
	@sh tests/setup.sh test

# What runs inside a box is a program of its own, embedded into nsbox: without
# cgo and the command line's libraries it starts faster and does less.
# Images and wheels are read by one more, which links what knows their formats.
STAGES := nsbox-stage nsbox-unpack
IMAGES := launcher/stage/image

stage: setup
	@for s in $(STAGES); do \
	  CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(IMAGES)/$$s ./cmd/$$s || exit 1; \
	  sha256sum $(IMAGES)/$$s | cut -d ' ' -f 1 >$(IMAGES)/$$s.sha256; \
	done

build: stage
	CGO_ENABLED=1 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/nsbox
	CGO_ENABLED=1 $(GO) build -trimpath -tags $(TAGS) -ldflags '-s -w -linkmode external -extldflags "-static"' -o bin/nsbox-verify ./tests/conformance/nsbox-verify
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/nsbox-verify-shim ./tests/export/shim
	@readelf -d $(BIN) >/dev/null && ! readelf -d $(BIN) | grep -q NEEDED || { echo "$(BIN) is not static" >&2; exit 1; }

demo: setup-demo build
	@sh demo/run.sh

# Packages that kill and time what they start have the machine to themselves, one
# after the other; the rest of tests/ runs two at a time.
ALONE := $(addprefix ./tests/,crash e2e limits vm)
# Making boxes of every kind takes root; a plain user's tests run through sudo.
AS_ROOT := $(shell test "$$(id -u)" -eq 0 || echo '-exec "sudo -E env PATH=$(PATH)"')

test: setup-test build
	$(GO) vet -tags $(TAGS) ./...
	CGO_ENABLED=1 $(GO) test $(STATIC) $(AS_ROOT) -timeout 30m $$($(GO) list ./... | grep -v '^nsbox/tests/')
	CGO_ENABLED=1 NSBOX_BIN=$(CURDIR)/$(BIN) $(GO) test $(STATIC) $(AS_ROOT) -count=1 -p 2 -timeout 40m $$($(GO) list ./tests/... | grep -vxF "$$($(GO) list $(ALONE))")
	CGO_ENABLED=1 NSBOX_VM=1 NSBOX_BIN=$(CURDIR)/$(BIN) $(GO) test $(STATIC) $(AS_ROOT) -count=1 -p 1 -timeout 40m $(ALONE)

# The tier with a unified cgroup hierarchy: kernels of their own in an emulator.
# make test boots two guests of it; this is all, with its long series.
test-vm: build
	NSBOX_VM=1 NSBOX_TEST_ALL=1 NSBOX_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -v -timeout 150m ./tests/vm

# The whole table of fixtures as root and as a plain user, written to docs/.
conformance: build
	@GO=$(GO) sh tests/conformance/record.sh

# The quick round while writing code: no set-up, no static link, no cached e2e binary.
test-go:
	$(GO) test -short ./...

# Every fuzz target of the tree, one after the other. Making inputs small takes most
# of the time by default.
FUZZTIME ?= 15s

fuzz:
	@grep -r -o --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sort | while IFS=: read -r file target; do \
	  echo "$$(dirname $$file) $${target#func }"; \
	  $(GO) test -run '^$$' -fuzz "^$${target#func }$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$(dirname $$file)" || exit 1; \
	done

# Traces and tables that are compared byte for byte.
golden:
	$(GO) test ./launcher ./cmd/nsbox -run 'Golden' -args -update

bench: build
	@sh tests/setup.sh bench
	$(GO) run ./tests/bench -nsbox $(BIN)
	$(GO) test -run '^$$' -bench Examine ./exporter
	NSBOX_BIN=$(CURDIR)/$(BIN) $(GO) test -run '^$$' -bench Export -benchtime 1x ./tests/export

# What reads the source only. staticcheck is fetched as a module, in the version named here.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

lint: stage
	@test -z "$$(gofmt -l .)" || { echo "gofmt:" >&2; gofmt -l . >&2; exit 1; }
	$(GO) vet -tags $(TAGS) ./...
	$(GO) run $(STATICCHECK) -tags $(TAGS) ./...

# Every generated document is written by the test that also holds it.
docs:
	$(GO) test $(GENERATED) -run 'Doc|Golden|Generated' -args -update

clean:
	rm -rf bin $(addprefix $(IMAGES)/,$(STAGES) $(addsuffix .sha256,$(STAGES)))
