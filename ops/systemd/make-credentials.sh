#!/bin/sh
# Makes the credentials of firstcome.service in a directory, and keeps those that are there: `make-credentials.sh DIR`.
set -eu

[ $# -eq 1 ] || {
    echo "usage: $0 DIR" >&2
    exit 2
}
umask 077
mkdir -p -- "$1"
random() { head -c 32 /dev/urandom | base64 | tr -d '\n' | tr '+/' '-_' | tr -d '='; }
keep() { # NAME TEXT
    [ -e "$1" ] || {
        printf '%s\n' "$2" >"$1.new"
        mv -- "$1.new" "$1"
    }
}
# The keys of callers.
keep "$1/admin-key" "fc_admin_$(random)"
keep "$1/service-keys" "fc_service_$(random)"
# The secret of a cluster: copy it to every node, or take that of another one. A service of one machine does not read it.
keep "$1/secret" "$(head -c 32 /dev/urandom | base64)"
