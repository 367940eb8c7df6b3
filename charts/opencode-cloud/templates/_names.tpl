{{/* The release's name for its objects, at most 40 characters: pods add to it. */}}
{{- define "oc.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of a role: (dict "root" $ "role" "gateway") */}}
{{- define "oc.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 40 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "oc.labels" -}}
{{ include "oc.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: opencode-cloud
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "oc.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "oc.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "oc.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* The Secret with everything that the cluster keeps secret. */}}
{{- define "oc.secret" -}}
{{ default (printf "%s-secrets" (include "oc.fullname" .)) .Values.secrets.existingSecret }}
{{- end -}}

{{/* The Secret with the URLs of NATS. */}}
{{- define "oc.natsSecret" -}}
{{- if .Values.nats.enabled -}}{{ include "oc.secret" . }}{{- else -}}{{ .Values.nats.existingSecret }}{{- end -}}
{{- end -}}

{{/* ID=URL of every placement member, separated by spaces. */}}
{{- define "oc.members" -}}
{{- $name := printf "%s-placement" (include "oc.fullname" .) -}}
{{- range $i, $_ := until (int .Values.placement.members) -}}
{{- $id := add $i $.Values.placement.firstMember -}}
{{- if $i }} {{ end -}}
{{ $id }}=http://{{ $name }}-{{ $id }}.{{ $name }}:4301
{{- end -}}
{{- end -}}

{{/* The URLs of the members, separated by commas. */}}
{{- define "oc.peers" -}}
{{- $urls := list -}}
{{- range splitList " " (include "oc.members" .) -}}
{{- $urls = append $urls (last (splitList "=" .)) -}}
{{- end -}}
{{ join "," $urls }}
{{- end -}}

{{/* Whether any of these is nothing that can work: a sentence each, all at once. */}}
{{- define "oc.check" -}}
{{- $wrong := list -}}
{{- if not (or .Values.database.existingSecret .Values.secrets.existingSecret) -}}
{{- $wrong = append $wrong "database.existingSecret is empty: create a Secret with the URL of a Postgres under the key `url`, and name it" -}}
{{- end -}}
{{- if not .Values.blobUrl -}}
{{- $wrong = append $wrong "blobUrl is empty: workers share no disk, so name a bucket, such as s3://my-bucket/opencode-cloud" -}}
{{- end -}}
{{- if and (not .Values.nats.enabled) (not .Values.nats.existingSecret) -}}
{{- $wrong = append $wrong "nats.enabled is false and nats.existingSecret is empty: name the Secret with the URLs of your own NATS" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- $wrong = append $wrong "ingress.enabled is true and ingress.host is empty: name the host, such as oc.example.com" -}}
{{- end -}}
{{- if and .Values.model.url (not .Values.model.name) (has .Values.model.protocol (list "anthropic-messages" "gemini" "bedrock-converse")) -}}
{{- $wrong = append $wrong (printf "model.name is empty: a server that speaks %s lists no models, so name one" .Values.model.protocol) -}}
{{- end -}}
{{- if and .Values.publicUrl (not (hasPrefix "https://" .Values.publicUrl)) (or .Values.gateway.tls.existingSecret .Values.ingress.tlsSecret) -}}
{{- $wrong = append $wrong (printf "publicUrl is %s although clients use TLS: let it begin with https://" .Values.publicUrl) -}}
{{- end -}}
{{- if lt (int .Values.worker.terminationGracePeriodSeconds) 30 -}}
{{- $wrong = append $wrong "worker.terminationGracePeriodSeconds is below 30: running turns alone get 20 seconds" -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n\n- %s\n" (join "\n- " $wrong)) -}}
{{- end -}}
{{- end -}}
