#!/bin/sh
# Installs the NATS project's client libraries, pinned, below target/clients: for tests/tests/it/feed_clients.rs,
# edge_clients.rs, acme.rs and feed_leaf.rs.
#
#   python/   nats-py and httpx, in a virtual environment       node/   nats, nats.ws and ws
#   go/       nats.go, as a program                             edge/   Go's HTTP client and server as programs, and h2spec
#   acme/     Pebble, a certificate authority for tests         hub/    nats-server, which the feed joins
#   grpc/     gRPC's own interoperability tests
#   natsgo/   nats.go's own tests of JetStream, and what gives them servers
#
# Safe to run again: what is there in the right version is left alone. A language that is not installed is named, and
# its clients are left out: the test says so too. Rust's client, async-nats, is a dependency of the tests themselves.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$here/../target}/clients
mkdir -p "$target"

same() { [ -f "$2" ] && cmp -s "$1" "$2"; }

if command -v python3 >/dev/null 2>&1; then
    if ! same "$here/clients/python/requirements.txt" "$target/python/requirements.txt"; then
        echo "tests: installing nats-py and httpx"
        rm -rf "$target/python"
        python3 -m venv "$target/python"
        "$target/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/clients/python/requirements.txt"
        cp "$here/clients/python/requirements.txt" "$target/python/"
    fi
else
    echo "tests: no python3, so nats-py and httpx are not tested (apt-get install python3-venv)" >&2
fi

if command -v npm >/dev/null 2>&1; then
    if ! same "$here/clients/node/package-lock.json" "$target/node/installed.json"; then
        echo "tests: installing nats, nats.ws and ws"
        rm -rf "$target/node"
        mkdir -p "$target/node"
        cp "$here/clients/node/package.json" "$here/clients/node/package-lock.json" "$target/node/"
        (cd "$target/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
        cp "$here/clients/node/package-lock.json" "$target/node/installed.json"
    fi
else
    echo "tests: no npm, so the nats package is not tested (apt-get install npm)" >&2
fi

if command -v go >/dev/null 2>&1; then
    mkdir -p "$target/go"
    if ! same "$here/clients/go/main.go" "$target/go/main.go" || ! same "$here/clients/go/go.sum" "$target/go/go.sum"; then
        echo "tests: building a client with nats.go"
        (cd "$here/clients/go" && go build -o "$target/go/client" .)
        cp "$here/clients/go/main.go" "$here/clients/go/go.sum" "$target/go/"
    fi
    mkdir -p "$target/edge"
    if ! same "$here/clients/edge/main.go" "$target/edge/main.go" || ! same "$here/clients/edge/go.sum" "$target/edge/go.sum" ||
        ! same "$here/clients/edge/origin/main.go" "$target/edge/origin.go"; then
        echo "tests: building a client and a server with Go's net/http, and h2spec"
        (cd "$here/clients/edge" && go build -o "$target/edge/client" . && go build -o "$target/edge/origin" ./origin &&
            go build -o "$target/edge/h2spec" github.com/summerwind/h2spec/cmd/h2spec)
        cp "$here/clients/edge/main.go" "$here/clients/edge/go.sum" "$target/edge/"
        cp "$here/clients/edge/origin/main.go" "$target/edge/origin.go"
    fi
    mkdir -p "$target/acme"
    if ! same "$here/clients/acme/go.sum" "$target/acme/go.sum"; then
        echo "tests: building Pebble"
        (cd "$here/clients/acme" && go build -o "$target/acme/pebble" github.com/letsencrypt/pebble/v2/cmd/pebble)
        cp "$here/clients/acme/go.sum" "$target/acme/"
    fi
    mkdir -p "$target/hub"
    if ! same "$here/clients/hub/go.sum" "$target/hub/go.sum"; then
        echo "tests: building nats-server"
        (cd "$here/clients/hub" && go build -o "$target/hub/nats-server" github.com/nats-io/nats-server/v2)
        cp "$here/clients/hub/go.sum" "$target/hub/"
    fi
    mkdir -p "$target/grpc"
    if ! same "$here/clients/grpc/main.go" "$target/grpc/main.go" || ! same "$here/clients/grpc/go.sum" "$target/grpc/go.sum"; then
        echo "tests: building gRPC's interoperability tests"
        (cd "$here/clients/grpc" && go build -o "$target/grpc/grpc" .)
        cp "$here/clients/grpc/main.go" "$here/clients/grpc/go.sum" "$target/grpc/"
    fi
    mkdir -p "$target/natsgo"
    if ! same "$here/clients/natsgo/main.go" "$target/natsgo/main.go" || ! same "$here/clients/natsgo/go.sum" "$target/natsgo/go.sum"; then
        echo "tests: building nats.go's own tests"
        rm -rf "$target/natsgo/suite"
        (cd "$here/clients/natsgo" && go build -o "$target/natsgo/tester" . &&
            cp -r "$(go list -m -f '{{.Dir}}' github.com/nats-io/nats.go)" "$target/natsgo/suite")
        chmod -R u+w "$target/natsgo/suite"
        (cd "$target/natsgo/suite" && go test -modfile=go_test.mod -c -o "$target/natsgo/jetstream.test" ./jetstream/test)
        cp "$here/clients/natsgo/main.go" "$here/clients/natsgo/go.sum" "$target/natsgo/"
    fi
else
    echo "tests: no go, so nats.go and net/http are not tested, nor by h2spec, Pebble and nats-server (apt-get install golang-go)" >&2
fi
