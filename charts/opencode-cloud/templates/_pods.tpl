{{/* What every pod has: (dict "root" $ "role" "gateway" "account" "name") */}}
{{- define "oc.pod" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: {{ eq .role "secrets" }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
enableServiceLinks: false
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if has .role (list "gateway" "worker" "placement") }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "oc.selector" . | nindent 8 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of a role's pods: (dict "root" $ "role" "gateway") */}}
{{- define "oc.podMeta" -}}
labels:
  {{- include "oc.labels" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .root.Values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A pod that needs no right at all. */}}
{{- define "oc.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "oc.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "oc.imageOf" -}}
image: {{ include "oc.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* A volume with these keys of the cluster's Secret as files: (dict "root" $ "keys" (list …) "nats" "gateway") */}}
{{- define "oc.secretsVolume" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ include "oc.secret" .root }}
          items:
            {{- range .keys }}
            - {key: {{ . }}, path: {{ . }}}
            {{- end }}
            {{- if and .nats .root.Values.metrics.enabled }}
            - {key: metrics-token, path: metrics-token}
            {{- end }}
      {{- if .nats }}
      - secret:
          name: {{ include "oc.natsSecret" .root }}
          items:
            - {key: nats-{{ .nats }}-url, path: nats-url}
      {{- end }}
      {{- if and .model .root.Values.model.existingSecret }}
      - secret:
          name: {{ .root.Values.model.existingSecret }}
          items:
            - {key: model-key, path: model-key}
      {{- end }}
{{- end -}}

{{/* The settings of a role of the cluster: (dict "root" $ "port" 4096) */}}
{{- define "oc.roleEnv" -}}
- {name: OPENCODE_CLOUD_BIND, value: 0.0.0.0}
- {name: OPENCODE_CLOUD_PORT, value: {{ .port | quote }}}
- {name: OPENCODE_CLOUD_DATABASE_URL_FILE, value: /secrets/database-url}
- {name: OPENCODE_CLOUD_NATS_URL_FILE, value: /secrets/nats-url}
- {name: OPENCODE_CLOUD_CLUSTER_SECRET_FILE, value: /secrets/cluster-secret}
- {name: OPENCODE_CLOUD_PLACEMENT_PEERS, value: {{ include "oc.peers" .root | quote }}}
{{- if .root.Values.metrics.enabled }}
- {name: OPENCODE_CLOUD_METRICS_BIND, value: "0.0.0.0:{{ .root.Values.metrics.port }}"}
- {name: OPENCODE_CLOUD_METRICS_TOKEN_FILE, value: /secrets/metrics-token}
{{- end }}
{{- end -}}

{{/* The settings that gateways and workers must have in common. */}}
{{- define "oc.modelEnv" -}}
- {name: OPENCODE_CLOUD_SECRETS_KEY_FILE, value: /secrets/secrets-key}
{{- with .Values.egressAllow }}
- {name: OPENCODE_CLOUD_EGRESS_ALLOW, value: {{ join "," . | quote }}}
{{- end }}
- {name: OPENCODE_CLOUD_BLOB_URL, value: {{ .Values.blobUrl | quote }}}
{{- with .Values.blobs.endpoint }}
- {name: OPENCODE_CLOUD_BLOB_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- with .Values.model.url }}
- {name: OPENCODE_CLOUD_MODEL_URL, value: {{ . | quote }}}
- {name: OPENCODE_CLOUD_MODEL_PROTOCOL, value: {{ $.Values.model.protocol }}}
{{- end }}
{{- with .Values.model.name }}
- {name: OPENCODE_CLOUD_MODEL, value: {{ . | quote }}}
{{- end }}
{{- with .Values.model.provider }}
- {name: OPENCODE_CLOUD_MODEL_PROVIDER, value: {{ . | quote }}}
{{- end }}
{{- if .Values.model.existingSecret }}
- {name: OPENCODE_CLOUD_MODEL_KEY_FILE, value: /secrets/model-key}
{{- end }}
{{- end -}}

{{- define "oc.providerEnv" -}}
{{- $from := compact (list .Values.providerKeys.existingSecret .Values.blobs.existingSecret) -}}
{{- if $from }}
envFrom:
  {{- range $from }}
  - secretRef: {name: {{ . }}}
  {{- end }}
{{- end }}
{{- end -}}
