{{- define "walferry.name" -}}
{{- if contains "walferry" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-walferry" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{/* Not empty if there are several workers. */}}
{{- define "walferry.cluster" -}}
{{- if gt (int .Values.replicas) 1 }}cluster{{ end -}}
{{- end }}

{{/* The service that gives each pod a name of its own: of one pod, nobody needs it. */}}
{{- define "walferry.members" -}}
{{ include "walferry.name" . }}{{ if include "walferry.cluster" . }}-workers{{ end }}
{{- end }}

{{- define "walferry.selector" -}}
app.kubernetes.io/name: walferry
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "walferry.labels" -}}
{{ include "walferry.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "walferry.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* Not empty if the endpoint asks who somebody is. */}}
{{- define "walferry.login" -}}
{{- $worker := .Values.worker -}}
{{- if or (get $worker "walferry.rest.users.file") (contains "BasicAuthSecurityRestExtension" (get $worker "rest.extension.classes" | default "")) }}login
{{- else if include "walferry.scheme" . }}
{{- if eq "required" (coalesce (get $worker "listeners.https.ssl.client.auth") (get $worker "ssl.client.auth") "none") }}login{{ end -}}
{{- end -}}
{{- end }}

{{- define "walferry.files" -}}
worker.properties: |
{{- range $name, $value := .Values.worker }}
  {{ $name }}={{ $value }}
{{- end }}
{{- if not (hasKey .Values.worker "walferry.rest.allowed.hosts") }}
{{- $name := include "walferry.name" . }}
  # The names of the service.
  walferry.rest.allowed.hosts={{ $name }},{{ $name }}.{{ .Release.Namespace }},{{ $name }}.{{ .Release.Namespace }}.svc,{{ $name }}.{{ .Release.Namespace }}.svc.cluster.local
{{- end }}
{{- if and (include "walferry.cluster" .) (not (hasKey .Values.worker "rest.advertised.host.name")) }}
  # The name under which the other workers reach this one.
  rest.advertised.host.name=${env:POD_NAME}.{{ include "walferry.members" . }}.{{ .Release.Namespace }}.svc.cluster.local
{{- end }}
{{- range $name, $config := .Values.connectors }}
{{ $name }}.json: |
  {{- dict "name" $name "config" $config | toPrettyJson | nindent 2 }}
{{- end }}
{{- end }}

{{- define "walferry.scheme" -}}
{{- if regexMatch "https://[^,]*:8083" (.Values.worker.listeners | default "") }}, scheme: HTTPS{{ end -}}
{{- end }}

{{- define "walferry.probe" -}}
{{- with .Values.readinessProbe.tokenFile }}, --token-file, {{ . | quote }}{{ end -}}
{{- with .Values.readinessProbe.url }}, --url, {{ . | quote }}{{ end -}}
{{- with .Values.readinessProbe.ca }}, --ca, {{ . | quote }}{{ end -}}
{{- end }}
