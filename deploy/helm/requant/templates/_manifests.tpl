{{/* The labels that select this release's pods. */}}
{{- define "requant.selector" -}}
app.kubernetes.io/name: requant
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* A name of deploy/kubernetes as this release has it: `requant-metrics` as `RELEASE-metrics`. */}}
{{- define "requant.name" -}}
{{- $root := index . 0 -}}
{{- index . 1 | replace "requant" $root.Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* A manifest of deploy/kubernetes, with the release's name and labels. */}}
{{- define "requant.manifest" -}}
{{- $root := index . 0 -}}
{{- $manifest := $root.Files.Get (printf "kubernetes/%s" (index . 1)) | fromYaml -}}
{{- $labels := include "requant.selector" $root | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) -}}
{{- $_ := set $manifest.metadata "name" (include "requant.name" (list $root $manifest.metadata.name)) -}}
{{- $_ := set $manifest.metadata "namespace" $root.Release.Namespace -}}
{{- $_ := set $manifest.metadata "labels" $labels -}}
{{- toYaml $manifest -}}
{{- end }}
