{{/* The name of all objects of a release. */}}
{{- define "firstcome.name" -}}
{{- if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels by which nodes are found: they never change. */}}
{{- define "firstcome.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "firstcome.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "firstcome.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* How nodes and the job of migrate reach servers. */}}
{{- define "firstcome.transport" -}}
{{- if .Values.allowPlaintext }}
- name: FIRSTCOME_ALLOW_PLAINTEXT
  value: "true"
{{- end }}
{{- if .Values.secret.keys.tlsCa }}
- name: FIRSTCOME_TLS_CA
  value: /run/secrets/firstcome/ca.pem
{{- end }}
{{- if .Values.secret.keys.tlsClientCert }}
- name: FIRSTCOME_TLS_CLIENT_CERT
  value: /run/secrets/firstcome/client-cert.pem
{{- end }}
{{- if .Values.secret.keys.tlsClientKey }}
- name: FIRSTCOME_TLS_CLIENT_KEY
  value: /run/secrets/firstcome/client-key.pem
{{- end }}
{{- end }}

{{/* The files that these variables name, in the volume of the Secret. */}}
{{- define "firstcome.transportItems" -}}
{{- with .Values.secret.keys.tlsCa }}
- key: {{ . }}
  path: ca.pem
{{- end }}
{{- with .Values.secret.keys.tlsClientCert }}
- key: {{ . }}
  path: client-cert.pem
{{- end }}
{{- with .Values.secret.keys.tlsClientKey }}
- key: {{ . }}
  path: client-key.pem
{{- end }}
{{- end }}

{{/* No pod needs more rights than these. */}}
{{- define "firstcome.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "firstcome.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
