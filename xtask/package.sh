#!/bin/sh
# Plays the life of the Debian package in a fresh Debian: `package.sh DEB VERSION`. Installs it, starts the service as its unit does,
# installs it again over changed settings, removes it, and purges it. Needs root and debootstrap.
set -eu

[ $# -eq 2 ] || {
    echo "usage: $0 DEB VERSION" >&2
    exit 2
}
deb=$1 version=$2 port=$((20000 + $$ % 20000))
mkdir -p target/package
root=$(mktemp -d -p target/package root.XXXXXX)
root=$(cd "$root" && pwd)
# The user of the service has to get in.
chmod 0755 "$root"
service=
clean() {
    [ -z "$service" ] || kill "$service" 2>/dev/null || true
    rm -rf -- "$root"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

say() { printf '%s\n' "$*"; }
fail() {
    say "FAILED: $*"
    exit 1
}
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
mode() { inside stat -c '%a %U' "$1"; }

codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
# The package depends on ca-certificates, and dpkg fetches nothing.
debootstrap --variant=minbase --include=ca-certificates "$codename" "$root" >"$root.log" 2>&1 || {
    tail -20 "$root.log"
    fail "no Debian $codename to install into"
}
rm -f "$root.log"
say "a fresh Debian $codename"

for needed in adduser ca-certificates; do
    dpkg-deb --field "$deb" Depends | grep -qE "(^|, )$needed(,|\$)" || fail "the package does not depend on $needed"
done
cp "$deb" "$root/firstcome.deb"
inside dpkg --install /firstcome.deb >/dev/null || fail "dpkg --install"
said=$(inside firstcome --version)
[ "$said" = "firstcome $version" ] || fail "firstcome --version says $said"
say "installed: $said"

inside getent passwd firstcome | grep -q ':/var/lib/firstcome:/usr/sbin/nologin$' || fail "there is no user firstcome without a shell"
for expected in \
    "/etc/firstcome/firstcome.toml 600 root" \
    "/etc/firstcome/credentials 700 root" \
    "/etc/firstcome/credentials/admin-key 600 root" \
    "/etc/firstcome/credentials/service-keys 600 root" \
    "/etc/firstcome/credentials/secret 600 root" \
    "/var/lib/firstcome 700 firstcome"; do
    path=${expected%% *}
    [ "$(mode "$path")" = "${expected#* }" ] || fail "$path is $(mode "$path"), not ${expected#* }"
done
inside dpkg-query --show --showformat '${Conffiles}\n' firstcome | grep -q /etc/firstcome/firstcome.toml || fail "the settings are no conffile"
say "user, credentials, settings and data directory are there, each for its owner alone"

unit=usr/lib/systemd/system/firstcome.service
[ -e "$root/$unit" ] || unit=lib/systemd/system/firstcome.service
cmp "$root/$unit" ops/systemd/firstcome.service || fail "another unit is installed"
# minbase leaves out manuals and documents unless dpkg is told otherwise, so the package itself is asked.
listed=$(dpkg-deb --contents "$deb" | awk '{print $6}')
for path in usr/share/man/man1/firstcome.1.gz usr/share/bash-completion/completions/firstcome usr/share/doc/firstcome/copyright \
    usr/share/fish/vendor_completions.d/firstcome.fish usr/share/zsh/vendor-completions/_firstcome \
    usr/share/doc/firstcome/examples/alerts.yml; do
    printf '%s\n' "$listed" | grep -q "^\./$path\$" || fail "the package has no $path"
done
# The page of the program names the pages of its commands, and those the pages of theirs.
pages=$(printf '%s\n' "$listed" | sed -n 's,^\./usr/share/man/man1/\(.*\)\.1\.gz$,\1,p')
for page in $pages; do
    for named in $(dpkg-deb --fsys-tarfile "$deb" | tar -xO "./usr/share/man/man1/$page.1.gz" | gzip -d | tr -d '\\' |
        sed -n 's/^\(firstcome-[a-z-]*\)(1)$/\1/p'); do
        printf '%s\n' "$pages" | grep -qx "$named" || fail "the manual page $page names $named(1), which the package does not have"
    done
done
printf '%s\n' "$pages" | grep -qx firstcome-serve || fail "the package has no manual page of serve"
inside bash -n /usr/share/bash-completion/completions/firstcome || fail "bash does not understand the completions"
say "unit, manual pages ($(printf '%s\n' "$pages" | wc -l)), completions, alert rules and licence are there"

# What the unit does, without systemd: root reads the credentials and gives copies to the user of the service.
start() {
    inside install -d -o firstcome -m 0500 /run/credentials
    for name in credentials/admin-key credentials/service-keys credentials/secret firstcome.toml; do
        inside install -o firstcome -m 0400 "/etc/firstcome/$name" "/run/credentials/${name##*/}"
    done
    # chroot becomes the program, so this is its process.
    chroot --userspec=firstcome:firstcome "$root" /usr/bin/env -i \
        FIRSTCOME_CONFIG=/run/credentials/firstcome.toml FIRSTCOME_DATA=/var/lib/firstcome \
        FIRSTCOME_LISTEN="127.0.0.1:$port" FIRSTCOME_ADMIN_LISTEN="127.0.0.1:$((port + 1))" \
        FIRSTCOME_ADMIN_KEY_FILE=/run/credentials/admin-key FIRSTCOME_SERVICE_KEYS_FILE=/run/credentials/service-keys \
        FIRSTCOME_SECRET_FILE=/run/credentials/secret \
        /usr/bin/firstcome serve >"$root/run/said" 2>"$root/run/log" &
    service=$!
    until inside firstcome health --url "http://127.0.0.1:$((port + 1))/readyz" 2>/dev/null; do
        kill -0 "$service" 2>/dev/null || {
            cat "$root/run/log"
            fail "the service has ended"
        }
    done
}
stop() {
    kill -TERM "$service"
    wait "$service" || fail "the service ended with $?"
    service=
}
start
! grep -q fc_ "$root/run/said" "$root/run/log" || fail "a key was shown"
key=$(cat "$root/etc/firstcome/credentials/admin-key")
status=$(curl -s -o /dev/null -w '%{http_code}' -X PUT -H "authorization: Bearer $key" -H 'content-type: application/json' \
    -d '{"limit":5}' "http://127.0.0.1:$port/v1/coupons/launch")
[ "$status" = 201 ] || fail "the admin key of the credentials gets $status"
stop
inside setpriv --reuid firstcome --regid firstcome --clear-groups firstcome verify --data /var/lib/firstcome >/dev/null || fail "verify"
say "the service starts as firstcome with its credentials, takes the admin key, stops at a signal, and its data are right"

say '# changed by an operator' >>"$root/etc/firstcome/firstcome.toml"
inside dpkg --install /firstcome.deb >/dev/null || fail "a second dpkg --install"
grep -q '^# changed by an operator' "$root/etc/firstcome/firstcome.toml" || fail "an upgrade lost changed settings"
[ "$(cat "$root/etc/firstcome/credentials/admin-key")" = "$key" ] || fail "an upgrade made new credentials"
start
stop
say "an upgrade keeps settings, credentials and data"

inside dpkg --remove firstcome >/dev/null || fail "dpkg --remove"
[ ! -e "$root/usr/bin/firstcome" ] || fail "the program is there after its removal"
[ -e "$root/etc/firstcome/firstcome.toml" ] && [ -e "$root/var/lib/firstcome/firstcome.db" ] || fail "a removal lost settings or data"
inside dpkg --purge firstcome >/dev/null 2>&1 || fail "dpkg --purge"
[ ! -e "$root/etc/firstcome" ] || fail "a purge left $(ls -A "$root/etc/firstcome")"
[ -e "$root/var/lib/firstcome/firstcome.db" ] || fail "a purge lost data"
say "a removal keeps settings and data, a purge keeps the data alone"
