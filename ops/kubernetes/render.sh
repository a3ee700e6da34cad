#!/bin/sh
# Renders the chart with its default values: `render.sh HELM…`, where HELM… is the command of Helm.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
chart=$here/../helm/firstcome
# A test compares this with the files of the chart, and so finds a chart that was changed and not rendered.
sum=$(cd "$chart" && find . -type f | LC_ALL=C sort | xargs cat | sha256sum | cut -d ' ' -f 1)
rendered=$("$@" template firstcome "$chart" --namespace default --kube-version 1.30.0)
{
    echo "# The chart ops/helm/firstcome with its default values. \`cargo xtask full package\` writes this file: change the chart instead."
    echo "# Chart: $sum"
    printf '%s\n' "$rendered"
} >"$here/firstcome.yaml"
