#!/bin/sh
# Renders the chart into ops/kubernetes/firstcome.yaml, and with other values into xtask/chart/rendered/. Checks each rendering.
set -eu

cd -- "$(dirname -- "$0")/../.."
mkdir -p target/package
(cd xtask/chart && go build -p 2 -trimpath -buildvcs=false -mod=readonly -o ../../target/package/decode . &&
    go build -p 2 -trimpath -buildvcs=false -mod=readonly -o ../../target/package/helm helm.sh/helm/v3/cmd/helm)
helm=target/package/helm
template() { "$helm" template shop ops/helm/firstcome --kube-version 1.30.0 "$@"; }

"$helm" lint --strict --quiet ops/helm/firstcome
ops/kubernetes/render.sh "$helm"
printf 'the chart with its default values: '
target/package/decode <ops/kubernetes/firstcome.yaml

# Tests read what is rendered here. One of them compares this with the files of the chart and the values, as for render.sh.
sum=$(find ops/helm/firstcome xtask/chart/values -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -d ' ' -f 1)
render() {
    values=xtask/chart/values/$1.yaml
    "$helm" lint --strict --quiet --values "$values" ops/helm/firstcome
    rendered=$(template --values "$values")
    {
        echo "# The chart with $values. \`cargo xtask full package\` writes this file: change the chart or the values instead."
        echo "# Chart: $sum"
        printf '%s\n' "$rendered"
    } >"xtask/chart/rendered/$1.yaml"
    # Without the PodMonitor, which is no object of Kubernetes itself and follows below.
    template --values "$values" --set podMonitor.enabled=false | target/package/decode
}
printf 'the chart with all that can be switched on: '
render everything
printf 'the chart with files from other volumes: '
render files
printf 'the PodMonitor: '
template --values xtask/chart/values/everything.yaml --show-only templates/monitor.yaml | target/package/decode unknown

# A misspelt value is refused.
if template --set replicas=3 >/dev/null 2>&1; then
    echo "FAILED: a value that the chart does not know is taken"
    exit 1
fi
# So is a variable that is none of the program.
if template --set settings.FIRST_COME=1 >/dev/null 2>&1; then
    echo "FAILED: a setting that the program does not read is taken"
    exit 1
fi
echo "a value that the chart does not know is refused"
