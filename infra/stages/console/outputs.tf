output "contract" {
  description = "What the stages above this one may rely on."
  value = {
    public_url      = var.upstream.identity.public_url
    certificate_arn = module.tls.certificate_arn
  }
}

output "helm_values" {
  description = "What this stage tells the chart."
  value = {
    publicUrl = var.upstream.identity.public_url
    gateway = {
      service = {
        type = "LoadBalancer"
        port = 443
        annotations = {
          "service.beta.kubernetes.io/aws-load-balancer-type"             = "nlb"
          "service.beta.kubernetes.io/aws-load-balancer-ssl-cert"         = module.tls.certificate_arn
          "service.beta.kubernetes.io/aws-load-balancer-ssl-ports"        = "443"
          "service.beta.kubernetes.io/aws-load-balancer-backend-protocol" = "tcp"
          "external-dns.alpha.kubernetes.io/hostname"                     = local.domain
        }
      }
    }
  }
}
