#!/bin/sh
# Holds the OpenAPI document against a service that runs: the lint of redocly, and schemathesis with all of its checks.
# $1 is the program. The tools come from PyPI and npm, into target/openapi. Prints what both say; fails if either finds anything.
set -eu
program=$PWD/$1
tools=$PWD/target/openapi
checks=$PWD/xtask/schemathesis.toml
if [ ! -x "$tools/venv/bin/schemathesis" ]; then
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check schemathesis==4.32.5
fi
[ -x "$tools/node_modules/.bin/redocly" ] || npm install --silent --no-fund --no-audit --prefix "$tools" @redocly/cli@2.77.0

REDOCLY_SUPPRESS_UPDATE_NOTICE=true "$tools/node_modules/.bin/redocly" lint --max-problems 0 docs/openapi.json > "$tools/lint" 2>&1 ||
    { cat "$tools/lint"; exit 1; }
grep -q "You have .* warning" "$tools/lint" && { cat "$tools/lint"; exit 1; }
echo "redocly lint: no error, no warning"

directory=$(mktemp -d)
trap 'kill "$service" 2> /dev/null || true; rm -rf "$directory"' EXIT
export FIRSTCOME_ADMIN_KEY=a-key-of-this-check-and-of-no-other-service
"$program" serve --listen 127.0.0.1:0 --data "$directory/data" --calls-per-minute 1000000 > "$directory/said" 2> "$directory/log" &
service=$!
tries=0
until url=$(grep -o 'http://127.0.0.1:[0-9]*' "$directory/said"); do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { cat "$directory/log"; exit 1; }
    sleep 0.1
done
"$tools/venv/bin/schemathesis" --config-file "$checks" run "$url/openapi.json" --header "Authorization: Bearer $FIRSTCOME_ADMIN_KEY" \
    --max-examples "${EXAMPLES:-50}" --seed 1 --no-color > "$directory/checked" 2>&1 || { cat "$directory/checked"; exit 1; }
sed -n '/^Test Phases/,$p' "$directory/checked"
