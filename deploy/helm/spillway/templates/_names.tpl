{{- define "spillway.labels" -}}
app.kubernetes.io/name: spillway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "spillway-%s" .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "spillway.selector" -}}
app.kubernetes.io/name: spillway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spillway.serviceAccount" -}}
{{ default .Release.Name .Values.serviceAccount.name }}
{{- end }}

{{- define "spillway.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag | replace "+" "-" }}
{{- end -}}
{{- end }}

{{- /* What the chart itself knows of spillway.yaml. */ -}}
{{- define "spillway.config" -}}
listen:
  runners: 0.0.0.0:7700
  api: 0.0.0.0:7701
  metrics: 0.0.0.0:7702
  {{- with .Values.service.gitlabPort }}
  gitlab: 0.0.0.0:{{ . }}
  {{- end }}
  {{- with .Values.service.jobRouterPort }}
  job_router: 0.0.0.0:{{ . }}
  {{- end }}
  tls:
    cert_file: /etc/spillway/tls/tls.crt
    key_file: /etc/spillway/tls/tls.key
    {{- if .Values.tls.clientCA }}
    ca_file: /etc/spillway/tls/ca.crt
    {{- end }}
{{- if .Values.redis.addrs }}
store:
  redis:
    addrs: {{ toJson .Values.redis.addrs }}
    {{- with .Values.redis.username }}
    username: {{ quote . }}
    {{- end }}
    {{- if .Values.redis.passwordSecret.name }}
    password_env: SPILLWAY_REDIS_PASSWORD
    {{- end }}
    {{- with .Values.redis.sentinelMaster }}
    sentinel: {master_name: {{ quote . }}}
    {{- end }}
    {{- if .Values.redis.cluster }}
    cluster: true
    {{- end }}
    {{- if .Values.redis.tls.enabled }}
    {{- if .Values.redis.tls.caSecret.name }}
    tls: {ca_file: /etc/spillway/redis-ca/ca.crt}
    {{- else }}
    tls: {}
    {{- end }}
    {{- end }}
{{- end }}
plugin_dir: /usr/lib/spillway/plugins
log: {format: json}
{{- end }}
