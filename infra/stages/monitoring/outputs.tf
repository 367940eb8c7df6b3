output "contract" {
  description = "What the stages above this one may rely on."
  value = {
    prometheus_url   = module.observability.prometheus_url
    alerts_topic_arn = module.observability.alerts_topic_arn
  }
}

output "helm_values" {
  description = "What this stage tells the chart."
  value       = { extraEnv = [{ name = "OPENCODE_CLOUD_LOG_FORMAT", value = "json" }] }
}
