output "contract" {
  description = "What the stages above this one may rely on."
  value = {
    region           = var.region
    vpc_id           = module.network.vpc_id
    subnet_ids       = module.network.private_subnet_ids
    cidr             = var.cidr
    cluster_name     = module.kubernetes.cluster_name
    namespace        = var.namespace
    workload_role    = module.kubernetes.workload_role_name
    key_arn          = module.encryption.key_arn
    blob_url         = module.blobs.url
    database_arn     = module.postgres.arn
    database_secret  = module.postgres.secret_arn
    database_address = module.postgres.address
  }
}

output "helm_values" {
  description = "What this stage tells the chart."
  value = {
    publicUrl      = var.upstream.identity.public_url
    blobUrl        = module.blobs.url
    database       = { existingSecret = "${var.name}-database" }
    serviceAccount = { create = true, name = local.account }
  }
}
