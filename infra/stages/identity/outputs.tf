output "contract" {
  description = "What the stages above this one may rely on."
  value = {
    issuer            = module.identity.issuer
    console_client_id = module.identity.console_client_id
    cli_client_id     = module.identity.cli_client_id
    public_url        = var.public_url
  }
}

output "helm_values" {
  description = "What this stage tells the chart."
  value       = { publicUrl = var.public_url }
}
