# What a person or CI runs. `make help` lists it.

CARGO ?= cargo
# Judges that others wrote: packages on Debian, and a Python package in a folder of its own.
JUDGES = sleuthkit makefs grub-common zstd e2fsprogs fdisk fuse3 xfsprogs jfsutils reiserfsprogs ntfs-3g btrfs-progs nilfs-tools \
  f2fs-tools libnbd-bin qemu-utils blktrace openjdk-17-jre-headless strace sqlite3
VENV = target/judges
WHEELS = dissect.ffs duckdb pyarrow google-crc32c pandas polars matplotlib nbclient nbformat ipykernel pytest mypy pyspark
MODULES = dissect.ffs, duckdb, pyarrow, google_crc32c, pandas, polars, matplotlib, nbclient, ipykernel, pytest, mypy, pyspark
# Packages for `test-qemu` and `test-qemu-logs`, besides a kernel: that is unpacked there and not installed.
QEMU = qemu-system-x86 busybox-static jfsutils reiserfsprogs nilfs-tools f2fs-tools libeatmydata1 xz-utils zstd
KERNEL ?= target/qemu/kernel

.PHONY: help test test-freebsd test-netbsd test-kills lint bench judges fuzz crash-campaign test-posix test-xfstests test-qemu test-qemu-logs test-qemu-pressure bench-qemu infer-qemu qemu-kernel bench-mount bench-analysis bench-overhead infer-table named-data crash-programs

help:
	@echo 'make test    all tests (installs the judges it may, skips out loud what it may not)'
	@echo 'make test-freebsd FSCK=/path/to/fsck_ffs  images and crash states before FreeBSD'"'"'s own fsck'
	@echo 'make test-netbsd FSCK_LFS=/path/to/fsck_lfs [DUMPLFS=/path/to/dumplfs]  LFS before NetBSD'"'"'s own fsck, written to docs/results/netbsd.md'
	@echo 'make test-kills [KILLS=200] [FSCK=/path/to/fsck_ffs]  mounts killed at random, written to docs/results/kills.md'
	@echo 'make test-stress [CALLS=100000 SEED=1 SEEDS=1 ONLY=soft-updates]  eight threads on mounts of every kind'
	@echo 'make guest-kernel [LINUX_SOURCE=/path/to/tree]  a Linux that runs as a process, for ordo trace run --kernel guest'
	@echo 'make guest-table [RUNS=100]  each file system in that kernel, written to docs/results/guest.md'
	@echo 'make lint    formatting, lints as errors, style'
	@echo 'make bench   the figures, written to docs/results/'
	@echo 'make reproduce  what the papers measured, side by side, written to docs/results/reproduced.md'
	@echo 'make whatif  playback of traces with a change, and the change really made, written to docs/results/whatif-kernel.md'
	@echo 'make whatif-large  the memory that playback of ten gigabytes takes (as root, with fio), written to docs/results/whatif-large.md'
	@echo 'make crash-campaign  the long exploration of crashes, written to docs/results/crash.md'
	@echo 'make crash-programs [LAZYFS=/path/to/lazyfs]  the power cut under programs with known mistakes and under real ones, written to docs/results/programs.md'
	@echo 'make test-posix PJDFSTEST=... FSX=...  suites and real programs on a mount, written to docs/results/posix.md'
	@echo 'make test-xfstests XFSTESTS=/path/to/tree  the generic tests of xfstests on a mount'
	@echo 'make test-qemu  JFS and ReiserFS of a Debian kernel in QEMU, watched, written to docs/results/qemu.md'
	@echo 'make test-qemu-logs  LFS beside NILFS2 and F2FS of that kernel under one workload, written to docs/results/lfs-beside.md'
	@echo 'make test-qemu-pressure  a mount in a guest of QEMU that is short of memory, written to docs/results/pressure.md'
	@echo 'make bench-qemu  JFS and ReiserFS of that kernel under the source trees, recorded for make bench'
	@echo 'make infer-qemu  policies of JFS, ReiserFS and ext3 there, beside the paper of 2005, written to docs/results/infer-papers.md'
	@echo 'make bench-building BASE=COMMIT  what building costs beside a commit of the past, written to docs/results/building.md'
	@echo 'make bench-mount [HALT_POLL=200000]  mounts side by side, written to docs/results/mount.md'
	@echo 'make bench-analysis SHARED=...  how fast traces are named and counted, written to docs/results/analysis.md'
	@echo 'make bench-overhead [OVERHEAD_ROUNDS=9]  what a pseudo-device costs beside a bare loop device, written to docs/results/overhead.md'
	@echo 'make infer-table  policies of the kernel'"'"'s file systems, inferred and true (as root), written to docs/results/infer.md'
	@echo 'make named-data [PGBENCH_SECONDS=20]  how many bytes of pgbench, git and tar get the path of their file (as root), written to docs/results/named.md'
	@echo 'make bench-calls [ROUNDS=7]  what recording system calls costs (as root), written to docs/results/calls-cost.md'
	@echo 'make bench-fleet [SECTIONS=proof,long]  workers, Spark, and recording in parts, written to docs/results/fleet.md'
	@echo 'make fuzz    the fuzz targets, a minute each (needs nightly and cargo-fuzz)'

test: judges
	@$(MAKE) --no-print-directory guest-kernel || echo 'SKIPPED: no guest kernel could be built'
	ORDO_PYTHON=$$(test -x $(VENV)/bin/python && echo $(CURDIR)/$(VENV)/bin/python || echo python3) \
	$(CARGO) test --workspace --no-fail-fast

# FreeBSD's own fsck_ffs, which takes a file as its device, built for this machine by whoever has it.
test-freebsd:
	@test -x "$(FSCK)" || { echo "make test-freebsd FSCK=/path/to/fsck_ffs"; exit 1; }
	ORDO_FREEBSD_FSCK=$(abspath $(FSCK)) $(CARGO) test --quiet --no-fail-fast \
	  --package ordo-check --package ordo-cli --package ordo-crash -- --ignored --nocapture freebsd

# NetBSD's own fsck_lfs and dumplfs, which take a file as their device, built for this machine by whoever has them. NETBSD_VERSION
# says in words which ones they are. RANDOM_DAMAGE images of each kind of metadata are damaged, from the seed RANDOM_SEED on.
# Writes docs/results/netbsd.md.
NETBSD_VERSION ?= of an unknown version
RANDOM_DAMAGE ?= 60
RANDOM_SEED ?= 1
NETBSD_PARTS = $(CURDIR)/target/netbsd
test-netbsd: export ORDO_NETBSD_VERSION = $(NETBSD_VERSION)
test-netbsd:
	@test -x "$(FSCK_LFS)" || { echo "make test-netbsd FSCK_LFS=/path/to/fsck_lfs [DUMPLFS=/path/to/dumplfs]"; exit 1; }
	@test -n "$(DUMPLFS)" || echo "NetBSD's dumplfs is not asked: DUMPLFS=/path/to/dumplfs"
	rm -rf $(NETBSD_PARTS) && mkdir -p $(NETBSD_PARTS)
	ORDO_NETBSD_FSCK=$(abspath $(FSCK_LFS)) ORDO_NETBSD_DUMPLFS=$(if $(DUMPLFS),$(abspath $(DUMPLFS))) \
	  ORDO_NETBSD_PAGE=$(NETBSD_PARTS) ORDO_NETBSD_RANDOM=$(RANDOM_DAMAGE) ORDO_NETBSD_SEED=$(RANDOM_SEED) \
	  $(CARGO) test --quiet --no-fail-fast --package ordo-check --package ordo-lfs --package ordo-crash --package ordo-cli \
	  --test all --test netbsd -- --ignored --nocapture netbsd_
	for part in $(NETBSD_PARTS)/*.md; do cat $$part && echo; done | cat -s > target/netbsd.md
	mv target/netbsd.md docs/results/netbsd.md

# The kernel that runs as a process, for tests and for `ordo ... --kernel guest`: built once, into ~/.cache/ordo/guest. LINUX_SOURCE names
# a source tree or an archive of Linux 6.12; without it, Debian's package is fetched.
GUEST_TOOLS = bison flex bc libelf-dev xz-utils patch
.PHONY: guest-kernel
guest-kernel:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for p in $(GUEST_TOOLS); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	  if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq $$missing >/dev/null || echo "could not install$$missing"; fi; \
	fi
	@LINUX_SOURCE=$(LINUX_SOURCE) crates/host/guest/kernel/build

# Each file system in the guest kernel, RUNS recordings of one seed each, written to docs/results/guest.md.
RUNS ?= 100
.PHONY: guest-table
guest-table: guest-kernel
	ORDO_GUEST_RUNS=$(RUNS) ORDO_GUEST_PAGE=$(CURDIR)/docs/results/guest.md \
	  $(CARGO) test --package ordo-cli --test guest -- --ignored --nocapture a_page_of_each

# As root on Debian the missing ones are installed; elsewhere their tests say that they are skipped.
judges:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for p in $(JUDGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	  if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq $$missing >/dev/null || echo "SKIPPED: could not install$$missing"; fi; \
	fi
	@if ! $(VENV)/bin/python -c 'import $(MODULES)' 2>/dev/null; then \
	  (python3 -m venv $(VENV) && $(VENV)/bin/pip install -q $(WHEELS)) \
	    || { rm -rf $(VENV); echo "SKIPPED: these could not be installed: $(WHEELS)"; }; \
	fi

# As root. Kills KILLS mounts at random over orderings and geometries; with FSCK=/path/to/fsck_ffs FreeBSD's looks too.
# Writes docs/results/kills.md.
KILLS ?= 200
KILLS_SEED ?= 1
test-kills:
	@test -z "$(FSCK)" || test -x "$(FSCK)" || { echo "$(FSCK) is no program"; exit 1; }
	@test -n "$(FSCK)" || echo "FreeBSD's fsck is not asked: FSCK=/path/to/fsck_ffs"
	ORDO_FREEBSD_FSCK=$(if $(FSCK),$(abspath $(FSCK))) ORDO_KILLS=$(KILLS) ORDO_KILLS_SEED=$(KILLS_SEED) \
	  ORDO_KILLS_PAGE=$(CURDIR)/docs/results/kills.md \
	  $(CARGO) test --workspace --test kills -- --ignored --nocapture many_kills

# As root. Eight threads on a mount, of every ordering and layout in several shapes, CALLS calls each, for SEEDS seeds from SEED on;
# only shapes whose names contain ONLY ("soft-updates --size 96m -b 4k").
CALLS ?= 100000
.PHONY: test-stress
test-stress:
	ORDO_STRESS_CALLS=$(CALLS) ORDO_STRESS_SEED=$(SEED) ORDO_STRESS_SEEDS=$(SEEDS) ORDO_STRESS_ONLY="$(ONLY)" \
	  $(CARGO) test --release --package ordo-cli --test stress -- --ignored --nocapture

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) xtask tidy

bench:
	$(CARGO) run --release --quiet --package ordo-figures --bin figures

# What the papers measured, at their sizes, published and measured side by side.
.PHONY: reproduce
reproduce:
	$(CARGO) build --release --quiet --package ordo-cli
	{ echo '# What the papers measured, measured here'; echo; \
	  echo 'Written by `make reproduce`. Virtual time on models of the papers'"'"' disks and processors, seed 1: exact.'; \
	  echo "Measured at commit $$(git rev-parse --short HEAD), $$(date -u +%F)."; \
	  echo; echo '```'; target/release/ordo reproduce --quiet; echo '```'; echo; \
	  echo '```'; target/release/ordo reproduce --list; echo '```'; } > target/reproduced.md
	mv target/reproduced.md docs/results/reproduced.md

# Traces of the kernel's file systems played with a change, beside the change really made: on disk models, and on this machine's
# disk. Needs root.
# Records ext4 in parts on a loop device, in LARGE, which needs 25 GB; a recording that is there already is taken.
LARGE ?= $(CURDIR)/target/whatif-large
.PHONY: whatif-large
whatif-large:
	$(CARGO) build --release --package ordo-cli
	@test -d $(LARGE)/trace || $(CURDIR)/xtask/whatif-large.sh $(CURDIR)/target/release/ordo $(LARGE)
	ORDO_LARGE_TRACE=$(LARGE)/trace ORDO_LARGE_PAGE=$(CURDIR)/docs/results/whatif-large.md \
	  $(CARGO) test --release --package ordo-cli --test whatif_large -- --ignored --nocapture
	$(CARGO) run --release --quiet --package ordo-playback --example playback >target/playback.md
	(echo; cat target/playback.md) >>docs/results/whatif-large.md

.PHONY: whatif
whatif:
	ORDO_WHATIF_PAGE=$(CURDIR)/docs/results/whatif-kernel.md $(CARGO) test --workspace --test whatif -- --ignored --nocapture
	ORDO_WHATIF_DEVICE_PAGE=$(CURDIR)/docs/results/whatif-device.md \
	  $(CARGO) test --package ordo-cli --test whatif_device -- --ignored --nocapture

# Every system on every honest disk; CRASH_CYCLES runs of ten crash cycles each; then, for each system of CRASH_LONG, each
# workload of CRASH_WORK and each geometry, CRASH_RUNS runs of up to CRASH_STATES states: with the defaults ten million states
# of each system that promises to need no check; the same for CRASH_FEW_WORK with a cache of CRASH_FEW blocks; then each rule of
# the orderings of CRASH_MUTANTS_OF switched off; then, as root, the kernel's file systems. What was stopped goes on where it was.
# Results are in target/campaign; `make crash-page` writes those of the long search into docs/results/campaign.tsv and
# docs/results/crash.md, and keeps the lines of earlier ones.
CRASH_ALL ?= 20
# CRASH_LIVES is the old name of CRASH_CYCLES.
CRASH_LIVES ?= 40
CRASH_CYCLES ?= $(CRASH_LIVES)
CRASH_RUNS ?= 5
CRASH_STATES ?= 25000
CRASH_LONG ?= ffs-soft-updates lffs-file lffs-wafs-1sync lffs-wafs-1async lffs-wafs-2sync lffs-wafs-2async \
  lffs-wafs-1sync-group lffs-wafs-2sync-group lfs dualfs
CRASH_WORK ?= random:clients=3,steps=120 random:names=200,steps=400,fsync=3 random:files=far,steps=200,fsync=5 \
  random:names=40,clients=4,steps=100 random:names=2000,steps=800 random:open=40,clients=2,steps=150 \
  random:append=80,steps=120 random:inodes=30,fsync=12,dirsync=40,steps=120 random:common=50,steps=120 \
  random:files=deep,steps=160,fsync=5 database \
  postmark:files=60,transactions=300 reuse overwrites links
CRASH_FEW ?= 12
CRASH_FEW_WORK ?= reuse overwrites random:append=80,steps=120 random:open=40,clients=5,steps=100
CRASH_MUTANTS ?= 25000
CRASH_MUTANTS_OF ?= ffs-sync ffs-soft-updates lffs-file lffs-wafs-1sync lffs-wafs-2async lffs-wafs-1sync-group lfs dualfs
CRASH_KERNEL ?= ext2,ext3,ext3-journal,ext3-writeback,ext4,xfs,btrfs
CRASH_KERNEL_RUNS ?= 4
CRASH_WITH = target/release/ordo crash
CRASH = $(CRASH_WITH) --resume
# The options of each part of the long search.
CRASH_EACH = --geometry all --runs $(CRASH_RUNS) --states $(CRASH_STATES) --usable-every 500 --recovery-every 2000
# The file of a workload's results.
part = $$(echo "$$fs-$$work" | tr -c 'a-z0-9\n' '-')
# Adds the seconds until the shell ends to a file, and notes the commit: `$(TIMED) NAME`.
TIMED = timed() { from=$$(date +%s); trap "echo \$$((\$$(date +%s) - $$from)) >> target/campaign/$$1.seconds" EXIT; \
  git rev-parse --short HEAD > target/campaign/$$1.commit; }; timed
crash-campaign:
	$(CARGO) build --release --quiet --package ordo-cli
	mkdir -p target/campaign
	-$(TIMED) all; $(CRASH) --model completed,volatile,prefix --runs $(CRASH_ALL) \
	  -o target/campaign/all.json >/dev/null
	-$(TIMED) lives; $(CRASH) --cycles 10 --runs $(CRASH_CYCLES) --states $(CRASH_STATES) \
	  --workload random:clients=3,steps=40 -o target/campaign/lives.json >/dev/null
	-for fs in $(CRASH_LONG); do for work in $(CRASH_WORK); do ( $(TIMED) long-$(part); $(CRASH) --fs $$fs $(CRASH_EACH) \
	  --workload $$work -o target/campaign/long-$(part).json >/dev/null ) ; done; done
	-for fs in $(CRASH_LONG); do for work in $(CRASH_FEW_WORK); do ( $(TIMED) long-few-$(part); $(CRASH) --fs $$fs \
	  $(CRASH_EACH) --cache-blocks $(CRASH_FEW) --workload $$work -o target/campaign/long-few-$(part).json >/dev/null ) ; \
	  done; done
	-$(MAKE) --no-print-directory crash-mutants
	-test "$$(id -u)" != 0 || { $(TIMED) kernel; $(CRASH) --fs $(CRASH_KERNEL) --runs $(CRASH_KERNEL_RUNS) --states 400 \
	  --recovery-every 20 --no-shrink --save target/campaign/kernel-failure.json \
	  -o target/campaign/kernel.json >/dev/null; }
	$(MAKE) --no-print-directory crash-page
	-$(CRASH_WITH) merge target/campaign/kernel.json
	for file in target/campaign/all.json target/campaign/lives.json target/campaign/long-*.json; do \
	  $(CRASH_WITH) merge $$file || exit 1; done

# Each rule of the systems of CRASH_MUTANTS_OF switched off in every geometry; docs/results/mutants.md.
.PHONY: crash-mutants
crash-mutants:
	$(CARGO) build --release --quiet --package ordo-cli
	mkdir -p target/campaign
	for fs in $(CRASH_MUTANTS_OF); do git rev-parse --short HEAD > target/campaign/mutants-$$fs.commit; \
	  { $(CRASH_WITH) mutants --fs $$fs --geometry all --states $(CRASH_MUTANTS) --json > target/campaign/mutants-$$fs.new || \
	    test $$? = 1; } && mv target/campaign/mutants-$$fs.new target/campaign/mutants-$$fs.json || exit 1; done
	$(MAKE) --no-print-directory crash-page

# The page of what the long search has found so far.
.PHONY: crash-page
crash-page:
	$(CARGO) xtask campaign

# As root. Programs with one mistake each and their twins on every file system; then real programs, from packages, as far as
# they are installed. Writes docs/results/programs.md.
PROGRAM_FS ?= ext4 xfs btrfs
PROGRAM_STATES ?= 200
# The states of each program with a known mistake, on each file system.
MISTAKE_STATES ?= 150
# Mount options whose guarantees are measured, separated by spaces.
PROGRAM_OPTIONS ?= ext4 ext4:external-journal ext4:data=journal,journal_checksum ext4:data=writeback ext4:nobarrier \
  ext4:nodelalloc ext3 xfs btrfs
PROGRAM_PACKAGES = strace redis-server git rsync python3-lmdb python3-plyvel postgresql python3-bsddb3 etcd-server etcd-client \
  librocksdb7.8 rsyslog libeatmydata1
# Only the real programs whose names match this regular expression.
PROGRAM_NAMES ?=
crash-programs:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for p in $(PROGRAM_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	  [ -z "$$missing" ] || apt-get update -qq; \
	  for p in $$missing; do DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends $$p >/dev/null || echo "could not install $$p"; done; \
	fi
	$(CARGO) build --release --quiet --package ordo-cli
	$(CARGO) build --release --quiet --locked --manifest-path $(MISTAKES)/redb/Cargo.toml --target-dir target/programs \
	  || echo 'redb does not build, and is not run'
	PROGRAM_STATES=$(PROGRAM_STATES); PROGRAM_NAMES='$(PROGRAM_NAMES)'; export PROGRAM_STATES PROGRAM_NAMES; { echo '# Real programs under the power cut'; echo; \
	  echo "Written by \`make crash-programs\` on $$(nproc) cores of $$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)," \
	    "Linux $$(uname -r); load before: $$(cut -d' ' -f1-3 /proc/loadavg)."; echo; \
	  python3 crates/shell/cli/tests/programs/real.py campaign target/release/ordo $(PROGRAM_FS); \
	  echo; $(MAKE) --no-print-directory crash-mistakes; \
	} > docs/results/programs.md
	@grep -q '^0 cells are wrong' docs/results/programs.md || { echo 'docs/results/programs.md: cells are wrong'; exit 1; }

# As root. The programs with one mistake each: on every file system, beside what other tools try, and on file systems with
# other mount options. LAZYFS is the binary of github.com/dsrhaslab/lazyfs, for a comparison with LazyFS itself. Prints
# Markdown.
MISTAKES = crates/shell/cli/tests/programs
.PHONY: crash-mistakes
crash-mistakes:
	@[ -n "$$ORDO" ] || $(CARGO) build --release --quiet --package ordo-cli
	@PROGRAM_STATES=$(MISTAKE_STATES); export PROGRAM_STATES; \
	at=$$(mktemp -d) && trap 'rm -rf "$$at"' EXIT && cc -O1 -o "$$at/c" $(MISTAKES)/mistakes.c && \
	rustc --edition 2024 -o "$$at/rust" $(MISTAKES)/mistakes.rs && ordo=$${ORDO:-target/release/ordo} && \
	echo '## Programs with a known mistake, and their twins' && echo && \
	python3 $(MISTAKES)/compare.py tools "$$ordo" "$$at/c" "$$at/rust"; \
	echo; echo '## Guarantees of mount options'; echo; \
	python3 $(MISTAKES)/compare.py guarantees "$$ordo" "$$at/c" "$$at/rust" $(PROGRAM_OPTIONS); \
	echo; echo '## Speed'; echo; python3 $(MISTAKES)/compare.py speed "$$ordo" "$$at/c" "$$at/rust"

# As root. PJDFSTEST is the Rust suite, PJDFSTEST_TREE a built tree of the one in C, FSX the fsx of crates.io, SOURCE an archive of something that ./configure
# and make build; what is not given is left out, aloud.
test-posix:
	$(CARGO) test --package ordo-cli --test posix -- --ignored --nocapture

# As root. XFSTESTS is a built tree of xfstests; without it, it says so. Writes docs/results/xfstests.md.
test-xfstests:
	$(CARGO) build --release --quiet --package ordo-cli
	XFSTESTS=$(XFSTESTS) $(CARGO) xtask xfstests target/release/ordo

# JFS and ReiserFS, which few kernels have, in an emulated machine whose disk Ordo serves. As root on Debian what is
# missing is installed; elsewhere it says what that is. The kernel of Debian 12 is taken from its package, without
# installing it, or from the folder KERNEL. Writes docs/results/qemu.md.
test-qemu: qemu-kernel
	$(CARGO) build --release --quiet --package ordo-cli
	KERNEL=$(abspath $(KERNEL)) $(CARGO) xtask qemu target/release/ordo

# NILFS2 and F2FS in such a machine, and LFS on this one (root): the bytes that each writes. Writes docs/results/lfs-beside.md.
test-qemu-logs: qemu-kernel
	$(CARGO) build --release --quiet --package ordo-cli
	KERNEL=$(abspath $(KERNEL)) $(CARGO) xtask qemu-logs target/release/ordo

# A mount in such a machine, which has little memory: another program takes it, or a control group limits it. Writes
# docs/results/pressure.md.
test-qemu-pressure: qemu-kernel
	$(CARGO) build --release --quiet --package ordo-cli
	KERNEL=$(abspath $(KERNEL)) $(CARGO) xtask qemu-pressure target/release/ordo

# JFS and ReiserFS under the source trees of the DualFS paper, recorded for the section of `make bench` that plays them.
bench-qemu: qemu-kernel
	$(CARGO) build --release --quiet --package ordo-cli
	KERNEL=$(abspath $(KERNEL)) $(CARGO) xtask qemu-sources target/release/ordo

# Policies of JFS, ReiserFS and ext3 in that machine, beside those of the paper of 2005. ONLY names one; what was found on the
# others is kept in target/qemu. Writes docs/results/infer-papers.md.
infer-qemu: qemu-kernel
	$(CARGO) build --release --quiet --package ordo-cli
	KERNEL=$(abspath $(KERNEL)) $(CARGO) xtask qemu-infer target/release/ordo

qemu-kernel:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for p in $(QEMU); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	  if [ -n "$$missing" ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends $$missing >/dev/null || echo "could not install$$missing"; fi; \
	fi
	@if [ ! -d $(KERNEL) ] && command -v apt-get >/dev/null; then \
	  package=$$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-6\.1\.[^ ]*\)$$/\1/p'); \
	  mkdir -p target/qemu && cd target/qemu && test -n "$$package" && apt-get download -qq -o APT::Sandbox::User=root $$package \
	    && dpkg -x $${package}_*.deb unpacked && mv unpacked $(abspath $(KERNEL)) \
	    || echo 'no package linux-image-6.1.*-amd64 could be had'; rm -f linux-image-*.deb; \
	fi

# As root, with ways that are there: strace, perf, cc. In memory: 1 GB in /dev/shm.
.PHONY: bench-calls
bench-calls:
	$(CARGO) xtask calls

# As root. PASSTHROUGH is libfuse's example passthrough_ll, PIN the processors to use, TREE what is untarred. With HALT_POLL=200000
# an idle processor of a virtual machine polls for so many nanoseconds before it halts; that page is mount-halt-poll.md.
bench-mount:
	$(CARGO) build --release --quiet --package ordo-cli
	$(CARGO) xtask mounts target/release/ordo

# On a quiet machine: half an hour.
.PHONY: bench-building
BASE ?= 1eb1395
bench-building:
	$(CARGO) xtask building $(BASE)

# As root, with Java. SECTIONS are measured and kept in target/fleet, and the page is written from all that are kept there: `sweep`,
# `recorder` and `estimate` want a quiet machine; `long` (an hour, and GIGABYTES of disk) and `proof` (STATES and TRACES, half an
# hour) do not. SECTIONS=none only writes the page.
.PHONY: bench-fleet
SECTIONS ?= sweep,recorder,estimate,proof,long
SECONDS ?= 3600
GIGABYTES ?= 12
ROUNDS ?= 5
STATES ?= 10000000
TRACES ?= 1000
bench-fleet: judges
	$(CARGO) build --release --quiet --package ordo-cli
	PYTHONPATH=python $(VENV)/bin/python -m measure target/release/ordo --kept target/fleet --page docs/results/fleet.md \
	  --sections $(SECTIONS) --seconds $(SECONDS) --gigabytes $(GIGABYTES) --rounds $(ROUNDS) --states $(STATES) \
	  --traces $(TRACES)

fuzz:
	cd fuzz && for t in mount check lfs dualfs; do mkdir -p corpus/$$t regressions/$$t && \
	  $(CARGO) +nightly fuzz run $$t corpus/$$t regressions/$$t -- -max_total_time=60 || exit 1; done

# Policies of this machine's file systems, found by experiments of about 40 seconds for each change that waits.
infer-table:
	$(CARGO) build --release --quiet --package ordo-infer --example infer_table
	mkdir -p target/analysis
	target/release/examples/infer_table > target/analysis/infer.md
	{ echo '# Inferred and true policies'; echo; \
	  echo "Written by \`make infer-table\` on $$(nproc) cores of" \
	    "$$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), Linux $$(uname -r); load after: $$(cut -d' ' -f1-3 /proc/loadavg)."; \
	  echo 'The true values are those of mount and mkfs options, of `/proc/sys`, and of the kernel'"'"'s sources (1/3 of the'; \
	  echo 'journal for a transaction of JBD2; for XFS an eighth of the log or 4 MB). An interval is that in which the value lies as far as the'; \
	  echo 'experiment shows; [how it is found](../analysis.md#policies). A data timer counts to the first write of file data at its place.'; \
	  echo; cat target/analysis/infer.md; \
	} > docs/results/infer.md

PGBENCH_SECONDS ?= 20
named-data:
	$(CARGO) build --release --quiet --package ordo-kernelfs --example named_data
	mkdir -p target/analysis
	target/release/examples/named_data $(PGBENCH_SECONDS) > target/analysis/named.md
	{ echo '# File data with the path of its file'; echo; \
	  echo "Written by \`make named-data\` on $$(nproc) cores of" \
	    "$$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), Linux $$(uname -r), with" \
	    "$$(pgbench --version) for $(PGBENCH_SECONDS) seconds, $$(git --version)."; \
	  echo 'A byte counts as certain where no other file may have owned its block at the time of the write. On btrfs the data'; \
  echo 'of a file that is removed before its transaction is committed have no file: no block that leads to them is ever written.'; \
	  echo; cat target/analysis/named.md; \
	} > docs/results/named.md

# As root, on a quiet machine. SHARED is the folder with traces that kernels made and the images that they start from.
SHARED ?= ../shared
PAIRS ?= 15
# Millions of requests of each trace that is counted from its tables.
MILLIONS ?= 2
bench-analysis:
	$(CARGO) build --release --quiet --package ordo-watcher --example naming
	$(CARGO) build --release --quiet --package ordo-annotate --example counting
	mkdir -p target/analysis
	{ echo '# Traces named and counted'; echo; \
	  echo "Written by \`make bench-analysis\` on $$(nproc) cores of" \
	    "$$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1); load before: $$(cut -d' ' -f1-3 /proc/loadavg)."; \
	  echo; echo '```'; \
	  for pair in ext3:ext3 reiserfs:reiserfs-ordered reiserfs:reiserfs-journal reiserfs:reiserfs-writeback jfs:jfs xfs:xfs; do \
	    zstd -dcqf $(SHARED)/traces/$${pair%%:*}-start.img.zst > target/analysis/start.img; \
	    zstd -dcqf $(SHARED)/traces/$${pair##*:}.dmlogwrites.zst > target/analysis/log; \
	    echo "$${pair##*:}"; target/release/examples/naming target/analysis/start.img target/analysis/log; \
	    target/release/examples/counting target/analysis/start.img target/analysis/log $(MILLIONS) target/analysis; \
	  done; \
	  echo '```'; \
	} > docs/results/analysis.md

# As root, on a quiet machine. PASSTHROUGH is libfuse's example passthrough_ll. PLACES are the folders of the images: memory, where a
# device is fastest and the cost largest, and a disk.
OVERHEAD_ROUNDS ?= 9
PLACES ?= /dev/shm target/analysis
bench-overhead:
	$(CARGO) build --release --quiet --package ordo-kernelfs --example overhead
	mkdir -p target/analysis
	{ echo '# What a pseudo-device costs'; echo; \
	  echo "Written by \`make bench-overhead PLACES='$(PLACES)'\` on $$(nproc) cores of" \
	    "$$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), Linux $$(uname -r); load before: $$(cut -d' ' -f1-3 /proc/loadavg)."; \
	  echo 'The work is on ext4, from the mount to the end of the unmount. "No names" is the server that only passes requests on.'; \
	  echo; for place in $(PLACES); do \
	    PASSTHROUGH=$(PASSTHROUGH) target/release/examples/overhead $(OVERHEAD_ROUNDS) $$place; done; \
	} > docs/results/overhead.md
