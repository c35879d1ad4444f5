#!/bin/sh
# Mailpit, for `make bench PART=mail`: built from its public source as its makers build it, the pages by npm and the program
# by Go, into target/bench/mail-peers. Needs Go and npm, no root. Safe to run again: what is there is left alone.
set -eu
cd "$(dirname "$0")/.."
version=v1.30.5
peers=$(pwd)/target/bench/mail-peers
if [ "$(cat "$peers/mailpit.version" 2>/dev/null)" = "mailpit $version" ] && [ -x "$peers/mailpit" ]; then
    exit 0
fi
command -v go >/dev/null && command -v npm >/dev/null || { echo "mailpit is built with Go and npm; install both" >&2; exit 1; }
mkdir -p "$peers"
# The source by the proxy of Go's modules, which checks it against the public list of checksums.
source=$(cd "$peers" && go mod download -json "github.com/axllent/mailpit@$version" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
rm -rf "$peers/mailpit-source"
cp -r "$source" "$peers/mailpit-source"
chmod -R u+w "$peers/mailpit-source"
cd "$peers/mailpit-source"
npm ci --silent --no-audit --no-fund
npm run --silent package
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/axllent/mailpit/config.Version=$version" -o "$peers/mailpit" .
echo "mailpit $version" > "$peers/mailpit.version"
