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

{{- /* Where replicas are known one by one. */ -}}
{{- define "spillway.replicas" -}}
{{ .Release.Name }}-replicas
{{- end }}

{{- /* Not empty if somebody may reach into running jobs. */ -}}
{{- define "spillway.debugged" -}}
{{- if or .Values.config.debug (.Values.config.listen | default dict).debug -}}yes{{- end -}}
{{- range .Values.config.access -}}
{{- if has "debug" .roles -}}yes{{- end -}}
{{- end -}}
{{- end }}

{{- /* What the chart itself knows of spillway.yaml; .replica is the host of one replica. */ -}}
{{- define "spillway.config" -}}
{{- if include "spillway.debugged" . }}
debug:
  advertise: {{ .replica }}:7701
{{- end }}
{{- if (.Values.config.gitlab | default dict).route }}
gitlab:
  route:
    advertise: {{ .replica }}:{{ required "service.jobRouterPort is empty: config.gitlab.route needs it, such as 7704" .Values.service.jobRouterPort }}
{{- end }}
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
