#!/bin/sh
# Runs once, when PostgreSQL makes its files: a role for the nodes, which may read and write rows and change no table.
set -eu

psql --quiet --set ON_ERROR_STOP=1 --set password="$(cat /run/secrets/node-password)" \
    --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE firstcome LOGIN PASSWORD :'password';
ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO firstcome;
ALTER DEFAULT PRIVILEGES GRANT USAGE, SELECT ON SEQUENCES TO firstcome;
SQL
