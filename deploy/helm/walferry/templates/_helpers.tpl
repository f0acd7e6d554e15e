{{- define "walferry.name" -}}
{{- if contains "walferry" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-walferry" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
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

{{- define "walferry.files" -}}
worker.properties: |
{{- range $name, $value := .Values.worker }}
  {{ $name }}={{ $value }}
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
