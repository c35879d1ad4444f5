#!/bin/sh
# Installs the peers of `make bench PART=feed`: Debian's own packages, and the newest nats-server by Go's own client.
# The servers are started by the bench on ports of its own: the packages' services are not wanted.
set -eu
[ "$(id -u)" = 0 ] || { echo "run as root: sudo $0" >&2; exit 1; }
NATS_SERVER_VERSION=v2.15.2
# Debian starts a service when its package is installed, unless this policy says no (101: forbidden by policy).
if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
fi
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    nats-server redis-server mosquitto golang-go strace util-linux iproute2 gcc libc6-dev
# Debian's stays in /usr/sbin and is measured too. A Go that is too old fetches the toolchain that the module names.
if ! /usr/local/bin/nats-server --version 2>/dev/null | grep -q "$NATS_SERVER_VERSION"; then
    GOBIN=/usr/local/bin GOTOOLCHAIN=auto go install "github.com/nats-io/nats-server/v2@$NATS_SERVER_VERSION"
fi
