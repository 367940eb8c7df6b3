output "contract" {
  description = "What the stages above this one may rely on."
  value = {
    url            = module.bucket.url
    retention_days = var.retention_days
  }
}

output "helm_values" {
  description = "What this stage tells the chart."
  value       = {}
}
