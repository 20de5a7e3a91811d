{{- define "torpor.name" -}}
{{- if contains "torpor" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-torpor" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "torpor.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "torpor.selector" -}}
app.kubernetes.io/name: torpor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "torpor.labels" -}}
{{ include "torpor.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The namespaces of sandboxes, as the list "items" of a YAML document. */}}
{{- define "torpor.sandboxNamespaces" -}}
items: {{ concat (list .Values.sandboxes.namespace) (values .Values.sandboxes.orgNamespaces | sortAlpha) | uniq | toJson }}
{{- end }}

{{- define "torpor.authSecret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-auth" (include "torpor.name" .)) }}
{{- end }}
{{- define "torpor.databaseSecret" -}}
{{ .Values.database.existingSecret | default (printf "%s-database" (include "torpor.name" .)) }}
{{- end }}
{{- define "torpor.storeSecret" -}}
{{ .Values.store.existingSecret | default (printf "%s-store" (include "torpor.name" .)) }}
{{- end }}
{{- define "torpor.hasStoreKeys" -}}
{{- if or .Values.store.existingSecret .Values.store.accessKeyId }}true{{ end }}
{{- end }}

{{/* What every server has. The name of the pod is the name of the node, and its address is that of the pod. */}}
{{- define "torpor.env" -}}
- { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
- { name: POD_IP, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
- { name: TORPOR_NODE, value: $(POD_NAME) }
- { name: TORPOR_ADVERTISE, value: "http://$(POD_IP):7676" }
- { name: TORPOR_HOST, value: 0.0.0.0 }
- { name: TORPOR_PORT, value: "7676" }
- { name: TORPOR_DATA_DIR, value: /data/torpor }
- { name: TORPOR_LOG_LEVEL, value: {{ .Values.logLevel | quote }} }
- { name: TORPOR_STORE, value: {{ .Values.store.url | quote }} }
- { name: TORPOR_DRAIN_ON_STOP, value: "true" }
{{- with .Values.domain }}
- { name: TORPOR_DOMAIN, value: {{ . | quote }} }
{{- end }}
- { name: TORPOR_ALLOWED_HOSTS, value: {{ join "," (concat (list (printf "%s" (include "torpor.name" .)) (printf "%s.%s" (include "torpor.name" .) .Release.Namespace) (printf "%s.%s.svc" (include "torpor.name" .) .Release.Namespace)) .Values.allowedHosts) | quote }} }
- name: TORPOR_DATABASE_URL
  valueFrom: { secretKeyRef: { name: {{ include "torpor.databaseSecret" . }}, key: url } }
- name: TORPOR_API_KEY
  valueFrom: { secretKeyRef: { name: {{ include "torpor.authSecret" . }}, key: api-key } }
- name: TORPOR_CLUSTER_SECRET
  valueFrom: { secretKeyRef: { name: {{ include "torpor.authSecret" . }}, key: cluster-secret } }
{{- with .Values.store.region }}
- { name: AWS_REGION, value: {{ . | quote }} }
{{- end }}
{{- with .Values.store.endpoint }}
- { name: AWS_ENDPOINT_URL_S3, value: {{ . | quote }} }
{{- end }}
{{- if include "torpor.hasStoreKeys" . }}
- name: AWS_ACCESS_KEY_ID
  valueFrom: { secretKeyRef: { name: {{ include "torpor.storeSecret" . }}, key: access-key-id } }
- name: AWS_SECRET_ACCESS_KEY
  valueFrom: { secretKeyRef: { name: {{ include "torpor.storeSecret" . }}, key: secret-access-key } }
{{- end }}
{{- range $name, $value := .Values.settings }}
- { name: {{ printf "TORPOR_%s" ($name | snakecase | replace "." "_" | upper) }}, value: {{ (kindIs "float64" $value | ternary ($value | int64) $value) | toString | quote }} }
{{- end }}
{{- end }}

{{/*
Not ready: the server does not answer, or cannot reach its database, without which it cannot hold its lease. A database that is
away must not restart servers, so the liveness probe asks only for a connection.
*/}}
{{- define "torpor.probes" -}}
startupProbe:
  httpGet: { path: /health, port: http }
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  httpGet: { path: /health, port: http }
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  tcpSocket: { port: http }
  periodSeconds: 10
  failureThreshold: 6
{{- end }}

{{/* A change of what the servers read from these Secrets restarts them. */}}
{{- define "torpor.checksum" -}}
checksum/secrets: {{ include (print .Template.BasePath "/secrets.yaml") . | sha256sum }}
{{- end }}

{{- define "torpor.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
