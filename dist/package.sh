#!/bin/sh
# Puts what `make dist` built into a tarball: programs, systemd unit, completions, manual pages, container file.
#
#   dist/package.sh BUILT OUT      BUILT: a directory with the programs      OUT: where the tarball goes
#
#   nighttrain-VERSION-ARCH-linux/
#     bin/                      nighttrain, nighttrain-lab (stripped)
#     lib/systemd/system/       nighttrain.service
#     share/                    completions of bash, zsh and fish; man/man1
#     etc/nighttrain.toml       settings to begin with; a machine's
#     etc/container.toml        settings to begin with; a container's
#     Containerfile             to be built in this directory
#     README.md …               what a reader of the tarball asks first
#
# The same programs give the same tarball, byte for byte: names sorted, no owner, the time of the commit.
set -eu
cd "$(dirname "$0")/.."
built=${1:?where are the programs?}
out=${2:?where does the tarball go?}

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name="nighttrain-$version-$(uname -m)-linux"
mkdir -p "$out"
out=$(cd "$out" && pwd)
root="$out/$name"
rm -rf "$root"
mkdir -p "$root/bin" "$root/etc" "$root/lib/systemd/system"

for program in nighttrain nighttrain-lab; do
    [ -x "$built/$program" ] || { echo "dist: there is no $built/$program: build it first" >&2; exit 1; }
    # What debuggers want stays beside the program that was built.
    strip -o "$root/bin/$program" "$built/$program"
done

program="$root/bin/nighttrain"
complete() {
    mkdir -p "$root/share/$2"
    "$program" completions "$1" >"$root/share/$2/$3"
}
complete bash bash-completion/completions nighttrain
complete zsh zsh/site-functions _nighttrain
complete fish fish/vendor_completions.d nighttrain.fish
mkdir -p "$root/share/man/man1"
"$program" manual "$root/share/man/man1"

cp dist/nighttrain.service "$root/lib/systemd/system/"
cp dist/nighttrain.toml dist/container.toml "$root/etc/"
cp dist/Containerfile README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE "$root/"

epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX --mtime="@$epoch" -C "$out" -cf - "$name" |
    gzip -n9 >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
