#!/bin/sh
# Installs the peers of `make bench PART=mail`: postfix (and its smtp-source, smtp-sink) from Debian, aiosmtpd from PyPI,
# maildev from npm, GreenMail from Maven Central. All but the Debian packages go to target/bench/mail-peers.
set -eu
[ "$(id -u)" = 0 ] || { echo "run as root: sudo $0" >&2; exit 1; }
cd "$(dirname "$0")/.."
if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
fi
echo "postfix postfix/main_mailer_type select No configuration" | debconf-set-selections
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    postfix python3-venv default-jre-headless maven util-linux
# Whoever has Node from elsewhere keeps it: Debian's npm conflicts with it.
command -v npm >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nodejs npm

peers=target/bench/mail-peers
mkdir -p "$peers/node"
[ -x "$peers/python/bin/python" ] || python3 -m venv "$peers/python"
"$peers/python/bin/pip" install --quiet aiosmtpd==1.4.6
(cd "$peers/node" && npm install --silent --no-fund --no-audit maildev@2.2.1)
greenmail=2.1.3
mvn -q dependency:copy -Dartifact=com.icegreen:greenmail-standalone:$greenmail -DoutputDirectory="$peers" -Dmdep.stripVersion=true
echo "GreenMail $greenmail" > "$peers/greenmail.version"
