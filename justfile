# `just` lists these.

_default:
    @just --list

# Serve from ./leat-data
run *args:
    cargo run --release -- {{args}}

# All tests; needs node, npm and python3
test *args:
    cargo test {{args}}

# The architecture rules alone, in a second
tidy:
    cargo test --test tidy

# Random histories of several processes under faults, and random trees of forks
histories cases='2000':
    LEAT_HISTORY_CASES={{cases}} cargo test --test engine -- history fork_trees

# The official SDKs against the built server
conformance *args:
    cargo test --test conformance {{args}}

# A tour of the official `s2` command line; the first run builds it, which takes a while
cli-tour:
    tests/conformance/cli-tour.sh

# Checks the templates, and builds what is deployed to AWS; needs python3
package:
    infra/package

# The store's tests, and Leat itself, on SeaweedFS; needs python3 and curl
seaweedfs:
    localstack/seaweedfs.sh test

# What a thousand idle sessions cost in memory
soak:
    cargo test --release --test it soak_ -- --ignored --nocapture

# What a streamed answer of the function costs beside a whole one
measure-lambda:
    cargo test --release --test lambda measure_ -- --ignored --nocapture

# What a sweep and a fork cost on an S3-compatible server, and what compaction brings
measure-store:
    cargo test --release --test emulators measure_ -- --ignored --nocapture --test-threads 1

# `s2 bench` against Leat and `s2 lite`, side by side; needs `just cli-tour` once
bench-peer:
    cargo build --release
    benches/peer/s2-lite.sh

# What an append costs beside a raw PUT; about a minute
bench *args:
    cargo bench --bench append -- {{args}}

# Format, lints, documentation
lint:
    cargo fmt --all -- --check
    cargo clippy --all-targets -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --no-deps

# Licences, advisories, sources; needs cargo-deny
deny:
    cargo deny check

# Read the code's documentation
doc:
    cargo doc --no-deps --document-private-items --open

# What CI runs
ci:
    .ci/run
