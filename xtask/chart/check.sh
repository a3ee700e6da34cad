#!/bin/sh
# Renders the chart into ops/kubernetes/firstcome.yaml, and checks it with its default values and with all that can be switched on.
set -eu

cd -- "$(dirname -- "$0")/../.."
mkdir -p target/package
(cd xtask/chart && go build -p 2 -trimpath -buildvcs=false -mod=readonly -o ../../target/package/decode . &&
    go build -p 2 -trimpath -buildvcs=false -mod=readonly -o ../../target/package/helm helm.sh/helm/v3/cmd/helm)
helm=target/package/helm
# Without a PodMonitor, which is no object of Kubernetes itself and follows below.
full=$(mktemp)
trap 'rm -f "$full"' EXIT
cat >"$full" <<'VALUES'
image: { digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000" }
imagePullSecrets: [{ name: registry }]
trustedProxies: [10.0.0.0/8, 192.168.0.1]
settings: { FIRSTCOME_JOINS_PER_MINUTE: "300", OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318", OTEL_SERVICE_NAME: shop }
allowPlaintext: true
secret: { keys: { tlsCa: ca, viewKeys: view-keys } }
service: { type: LoadBalancer, annotations: { a: b } }
networkPolicy:
  enabled: true
  visitors: [{ namespaceSelector: { matchLabels: { a: b } } }]
  operators: [{ podSelector: {} }]
podAnnotations: { a: b }
podLabels: { a: b }
nodeSelector: { a: b }
tolerations: [{ key: a, operator: Exists }]
affinity: { nodeAffinity: {} }
topologySpreadConstraints: [{ maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule }]
priorityClassName: high
VALUES
"$helm" lint --strict --quiet ops/helm/firstcome
"$helm" lint --strict --quiet --values "$full" ops/helm/firstcome
ops/kubernetes/render.sh "$helm"
printf 'the chart with its default values: '
target/package/decode <ops/kubernetes/firstcome.yaml
printf 'the chart with all that can be switched on: '
"$helm" template shop ops/helm/firstcome --kube-version 1.30.0 --values "$full" | target/package/decode
printf 'the PodMonitor: '
"$helm" template shop ops/helm/firstcome --kube-version 1.30.0 --values "$full" --set podMonitor.enabled=true \
    --set podMonitor.labels.a=b --show-only templates/monitor.yaml | target/package/decode unknown
# A misspelt value is refused.
if "$helm" template shop ops/helm/firstcome --kube-version 1.30.0 --set replicas=3 >/dev/null 2>&1; then
    echo "FAILED: a value that the chart does not know is taken"
    exit 1
fi
# So is a variable that is none of the program.
if "$helm" template shop ops/helm/firstcome --kube-version 1.30.0 --set settings.FIRST_COME=1 >/dev/null 2>&1; then
    echo "FAILED: a setting that the program does not read is taken"
    exit 1
fi
echo "a value that the chart does not know is refused"
