# Entry points. Each target installs what it needs where it may (root or passwordless sudo, through apt),
# and otherwise says what is missing and goes on without it where that is possible.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
BIN := $(TARGET)/release/restripe

# Features of the command: tls, ublk, vhost-user. Packages have all: `make build FEATURES=tls,ublk,vhost-user`.
FEATURES ?=
PACKAGED := tls,ublk,vhost-user

# Where `make install` puts things; DESTDIR goes before all of it, for packages.
PREFIX ?= /usr/local
DESTDIR ?=
SHARE := $(DESTDIR)$(PREFIX)/share
# udev reads /usr/local/lib/udev/rules.d, /usr/lib/udev/rules.d and /etc/udev/rules.d.
UDEV_RULES ?= $(PREFIX)/lib/udev/rules.d

.PHONY: help build install demo test test-deep bench lint fmt man

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## Build the release binary, target/release/restripe, with man pages and completions in target/share
	@.ci/need cargo
	$(CARGO) build --release -p restripe-cli $(if $(FEATURES),--features $(FEATURES))
	$(BIN) generate $(TARGET)/share

install: ## Put binary, man pages, completions and udev rules under PREFIX; builds first (with all features) unless the binary is there
	@test -x $(BIN) || $(MAKE) build FEATURES=$(or $(FEATURES),$(PACKAGED))
	install -D -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/restripe
	umask 022; $(BIN) generate $(SHARE)
	install -d $(DESTDIR)$(UDEV_RULES)
	sed 's|@BINDIR@|$(PREFIX)/bin|g' docs/udev/64-restripe.rules > $(DESTDIR)$(UDEV_RULES)/64-restripe.rules
	chmod 644 $(DESTDIR)$(UDEV_RULES)/64-restripe.rules

demo: build ## A RAID-5 that loses two disks and its daemon under load, and comes out right
	@mkdir -p target
	$(BIN) demo --report target/demo.html

test: ## Every test that needs no minutes: units, laws, swarm, conformance, command line, real clients
	@.ci/need cargo
	@.ci/need --optional cargo-nextest nbdinfo nbdcopy nbdkit nbdsh openssl udevadm qemu-io qemu-img qemu-iscsi qemu-storage-daemon fio iscsi-test-cu
	.ci/test

# `xtask md` attaches an array through ublk, and serves a virtual machine.
test-deep: FEATURES := $(or $(FEATURES),$(PACKAGED))
test-deep: build ## The long tests that have not passed for these sources; PART=NAME runs one, PART=list lists them
	@.ci/need cargo
	@.ci/need --optional cargo-nextest nbdinfo nbdcopy nbdkit nbdsh openssl nbdfuse fusermount3 qemu-io qemu-img qemu-iscsi fio iscsi-test-cu
	$(CARGO) run --quiet -p xtask -- deep $(PART)

bench: build ## Measurements, side by side with their yardsticks in one run: an hour
	@.ci/need cargo
	@.ci/need --optional nbdkit nbdcopy openssl fio valgrind iscsi-perf tgtd qemu-io qemu-iscsi qemu-storage-daemon
	$(CARGO) run --release -p restripe-code --example bench_kernels
	$(CARGO) run --release -p restripe-array --example bench_engine
	$(CARGO) run --release -p restripe-array --example bench_cache
	$(CARGO) run --release -p restripe-tier --example bench_overlay
	$(CARGO) run --release -p restripe-array --example heat_cost
	$(CARGO) run --release -p restripe-sim --example bench_world
	$(CARGO) run --release -p restripe-lab --example real_schemes
	$(CARGO) run --release -p restripe-lab --example real_streams
	$(CARGO) bench -p restripe-io --bench served
	$(CARGO) bench -p restripe-io --bench vhost
	$(CARGO) bench -p restripe-io --bench tasks
	$(CARGO) run --quiet -p xtask -- iscsi-bench
	$(CARGO) run --quiet -p xtask -- md-bench

lint: ## Format, clippy without warnings, and the house rules
	@.ci/need cargo rustfmt cargo-clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) run --quiet -p xtask -- tidy

fmt: ## Format the sources
	$(CARGO) fmt --all

man: build ## Write man pages and completions into target/share
