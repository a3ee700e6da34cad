#!/bin/sh
# Makes the secrets of docker-compose.yml in the directory `secrets` beside it. Keeps those that are there: the database and Redis
# know them already.
set -eu

cd -- "$(dirname -- "$0")"
umask 077
mkdir -p secrets
cd secrets

random() { head -c 32 /dev/urandom | base64 | tr -d '\n' | tr '+/' '-_' | tr -d '='; }
keep() { # NAME TEXT
    [ -e "$1" ] || printf '%s\n' "$2" >"$1"
}

keep owner-password "$(random)"
keep node-password "$(random)"
keep redis-password "$(random)"
keep admin-key "fc_admin_$(random)"
keep service-keys "fc_service_$(random)"
keep view-keys "fc_view_$(random)"
keep secret "$(head -c 32 /dev/urandom | base64)"
keep redis.conf "requirepass $(cat redis-password)"
keep owner-url "postgres://owner:$(cat owner-password)@postgres/firstcome"
keep redis-url "redis://:$(cat redis-password)@redis:6379"
keep sql-url "postgres://firstcome:$(cat node-password)@postgres/firstcome"

# Compose mounts each file as it is here, and the users in the containers are not its owner. Other users of this machine are kept
# out by the directory.
chmod 0444 ./*
echo "the admin key is in $(pwd)/admin-key" >&2
