# How people reach the service: a name, a certificate, and the load balancer's part of the chart.

locals {
  domain = trimprefix(var.upstream.identity.public_url, "https://")
}

module "tls" {
  source  = "../../modules/dns-tls"
  domain  = local.domain
  zone_id = var.zone_id
}
