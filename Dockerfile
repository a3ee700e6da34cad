# Builds the one binary, and puts nothing beside it: `docker build -t firstcome .`
# A service over many nodes needs no volume: `docker run firstcome serve --listen 0.0.0.0:8080`, with FIRSTCOME_REDIS, FIRSTCOME_SQL
# and FIRSTCOME_SECRET_FILE in its environment, after `docker run firstcome migrate` has made the tables.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY .cargo .cargo
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY xtask xtask
# The service shows it.
COPY docs/openapi.json docs/openapi.json
RUN cargo build --release --locked --package firstcome-cli

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin firstcome \
    && install --directory --owner=firstcome --group=firstcome --mode=0700 /data
COPY --from=build /build/target/release/firstcome /usr/local/bin/firstcome
USER firstcome
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["firstcome", "health", "--url", "http://127.0.0.1:8080/readyz"]
ENTRYPOINT ["firstcome"]
CMD ["serve", "--listen", "0.0.0.0:8080", "--data", "/data"]
