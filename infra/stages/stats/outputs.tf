output "contract" {
  description = "What the stages above this one may rely on."
  value = {
    database_address = module.replica.address
    database_secret  = var.upstream.app.database_secret
    lake_url         = var.upstream.lake.url
  }
}

output "helm_values" {
  description = "What this stage tells the chart."
  value       = {}
}
