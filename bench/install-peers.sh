#!/bin/sh
# Installs the peers and the loads of `make bench` for cache, tls and pressure, from Debian's own packages.
# The servers are started by the bench from temporary directories: the packages' services are not wanted.
set -eu
[ "$(id -u)" = 0 ] || { echo "run as root: sudo $0" >&2; exit 1; }
# Debian starts a service when its package is installed, unless this policy says no (101: forbidden by policy).
if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
fi
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    varnish hitch nginx-light haproxy trafficserver squid \
    wrk nghttp2-client openssl strace util-linux iproute2 gcc libc6-dev
