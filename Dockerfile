# Builds the one binary, and puts only the public certificate authorities beside it: `docker build -t firstcome .`
# A service over many nodes needs no volume: `docker run firstcome serve --listen 0.0.0.0:8080`, with FIRSTCOME_REDIS_FILE,
# FIRSTCOME_SQL_FILE and FIRSTCOME_SECRET_FILE in its environment, after `docker run firstcome migrate` has made the tables.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY .cargo .cargo
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY xtask xtask
# The service shows it.
COPY docs/openapi.json docs/openapi.json
RUN cargo build --release --locked --package firstcome-cli

FROM debian:bookworm-slim
# By number, so that Kubernetes can see that it is not root.
RUN groupadd --system --gid 10001 firstcome \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin firstcome \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
# Without them `rediss://` and `sslmode=verify-full` trust no server but those of an authority of your own.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /build/target/release/firstcome /usr/local/bin/firstcome
USER 10001:10001
# The root may be read-only: the service writes to this directory alone, and as a node of a cluster to none.
VOLUME /data
# Health and metrics, without a key and for this container alone. Say 0.0.0.0:8081 for a balancer and Prometheus on a network of yours.
ENV FIRSTCOME_ADMIN_LISTEN=127.0.0.1:8081
EXPOSE 8080 8081
# Whether the process is alive, since supervisors end what is unhealthy: a Redis or a database that is away is no reason, nor is a flood
# of visitors, whose connections this port does not share. A balancer asks /readyz.
HEALTHCHECK --interval=10s --timeout=3s --retries=3 --start-period=60s CMD ["firstcome", "health", "--url", "http://127.0.0.1:8081/healthz"]
ENTRYPOINT ["firstcome"]
CMD ["serve", "--listen", "0.0.0.0:8080", "--data", "/data"]
