{{- define "mnemogate.labels" -}}
app.kubernetes.io/name: mnemogate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mnemogate.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "mnemogate.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: { drop: ["ALL"] }
{{- end }}
