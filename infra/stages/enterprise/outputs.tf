output "contract" {
  description = "What the stages above this one may rely on."
  value = {
    organisation = var.organisation
    public_url   = var.upstream.console.public_url
    node_labels  = { "opencode-cloud/organisation" = var.organisation }
    egress_hosts = var.egress_hosts
  }
}

output "helm_values" {
  description = "What this stage tells the chart."
  value = {
    nodeSelector = { "opencode-cloud/organisation" = var.organisation }
    tolerations  = [{ key = "opencode-cloud/organisation", operator = "Equal", value = var.organisation, effect = "NoSchedule" }]
    worker       = { sandbox = "A" }
    egressAllow  = var.egress_hosts
  }
}
