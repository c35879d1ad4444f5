#!/bin/sh
# Installs what the end-to-end tests need from Debian, and says so when it cannot.
#
#   nginx-light   a real web server, in front of which the accelerator is put
#   wx3.2-doc     a real documentation tree: 5,303 files (HTML, SVG, PNG, scripts), 182 MB, a download of 7 MB
#   curl          an HTTP client that we did not write
#   postfix       its smtp-source, which sends mail as fast as it can; nothing of postfix is started
#   swaks         an SMTP client that we did not write; openssl makes it a certificate to meet
#   strace        counts the system calls of a hit
#   chromium      the browser that the mail pages and the lab's page are tried in, with fonts for what samples say
#   nodejs, npm   drive it, and run the clients that others wrote for Mailinator and Mailpit
#   python3-venv  the same for Mailinator's client for Python
#   golang-go     the same guide's third language; with nodejs and python3, origins for ambiguous requests
#   wordpress     a real program with sessions, and its theme; php-cli and php-mysql run it over mariadb-server
#   nats-server   a hub that the feed joins, of 2022 (the newest is built by tests/install-clients.sh); none is started
#   iproute2      a network of its own, in which the mail guide's commands run as written
#
# Safe to run again: what is there is left alone, and nothing is fetched when nothing is missing.
set -eu

tree=/usr/share/doc/wx3.2-doc/html
files_min=2000

fail() {
    echo "tests/install-packages.sh: $*" >&2
    exit 1
}

tree_is_there() {
    [ -d "$tree" ] && [ "$(find "$tree" -type f | head -n "$files_min" | wc -l)" -ge "$files_min" ]
}

missing=""
# By its files: Debian's nginx lives in /usr/sbin, which is not on every user's PATH.
{ command -v nginx || [ -x /usr/sbin/nginx ]; } >/dev/null 2>&1 || missing="$missing nginx-light"
command -v curl >/dev/null 2>&1 || missing="$missing curl"
command -v h2load >/dev/null 2>&1 || missing="$missing nghttp2-client"
command -v strace >/dev/null 2>&1 || missing="$missing strace"
{ command -v smtp-source || [ -x /usr/sbin/smtp-source ]; } >/dev/null 2>&1 || missing="$missing postfix"
command -v swaks >/dev/null 2>&1 || missing="$missing swaks"
# What swaks needs for STARTTLS and for AUTH; its package only suggests them.
perl -MNet::SSLeay -e 1 >/dev/null 2>&1 || missing="$missing libnet-ssleay-perl"
perl -MAuthen::SASL -e 1 >/dev/null 2>&1 || missing="$missing libauthen-sasl-perl"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
[ -x /usr/bin/chromium ] || missing="$missing chromium"
# The letters that pages and samples are made of: a browser without them shows boxes, and the pictures differ.
has_font() { find /usr/share/fonts /usr/local/share/fonts -name "$1" 2>/dev/null | grep -q .; }
has_font 'DejaVuSans.ttf' || missing="$missing fonts-dejavu-core"
has_font 'NotoSansCJK*' || missing="$missing fonts-noto-cjk"
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
[ -x /usr/sbin/nats-server ] || missing="$missing nats-server"
command -v go >/dev/null 2>&1 || missing="$missing golang-go"
python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || missing="$missing python3-venv"
{ command -v ip || [ -x /usr/sbin/ip ]; } >/dev/null 2>&1 || missing="$missing iproute2"
[ -e /usr/share/wordpress/wp-load.php ] || missing="$missing wordpress"
# Without its recommended theme WordPress shows empty pages.
[ -e /usr/share/wordpress/wp-content/themes/twentytwentythree/style.css ] ||
    missing="$missing wordpress-theme-twentytwentythree"
[ -x /usr/bin/php ] || missing="$missing php-cli"
php -m 2>/dev/null | grep -q mysqli || missing="$missing php-mysql"
[ -x /usr/sbin/mariadbd ] && [ -x /usr/bin/mariadb-install-db ] || missing="$missing mariadb-server"
# Container images leave /usr/share/doc out of every package, so the package alone proves nothing: look at the files.
tree_is_there || missing="$missing wx3.2-doc"

if [ -z "$missing" ]; then
    echo "tests: every package that the tests need is there"
    exit 0
fi

command -v apt-get >/dev/null 2>&1 ||
    fail "this is not a Debian system (no apt-get). Needed and missing:$missing"

if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo"
else
    fail "not root, and sudo would ask for a password. As root, run: apt-get install --no-install-recommends$missing"
fi

# A server that a package starts at once would take port 80, and a container has no init to start it with.
policy=/usr/sbin/policy-rc.d
made_policy=""
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null && $as_root chmod 755 "$policy"
    made_policy=yes
fi
trap '[ -z "$made_policy" ] || $as_root rm -f "$policy"' EXIT

install() {
    # shellcheck disable=SC2086  # $missing is a list
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --reinstall \
        -o Dpkg::Options::="--path-include=/usr/share/doc/wx3.2-doc/*" $missing >/dev/null
}

echo "tests: installing$missing"
# The lists may be absent (images ship without them) or stale: refresh only when the first try fails.
install 2>/dev/null || {
    $as_root apt-get update -qq || fail "apt-get update failed: is there a network? Needed and missing:$missing"
    install || fail "apt-get could not install:$missing"
}
tree_is_there || fail "wx3.2-doc is installed, yet $tree has fewer than $files_min files"
echo "tests: installed$missing"
