# Where the service runs and what it keeps: network, cluster, Postgres, bucket, key.

locals {
  # What the chart calls its account in a release of this name.
  account = "${var.name}-opencode-cloud"
}

module "network" {
  source = "../../modules/network"
  name   = var.name
  cidr   = var.cidr
  zones  = var.zones
}

module "encryption" {
  source = "../../modules/encryption"
  name   = var.name
}

module "blobs" {
  source  = "../../modules/object-store"
  name    = "${var.name}-blobs"
  prefix  = "oc"
  key_arn = module.encryption.key_arn
}

module "postgres" {
  source         = "../../modules/postgres"
  name           = var.name
  vpc_id         = module.network.vpc_id
  subnet_ids     = module.network.private_subnet_ids
  client_cidr    = var.cidr
  key_arn        = module.encryption.key_arn
  instance_class = var.database.instance_class
  storage_gb     = var.database.storage_gb
}

module "kubernetes" {
  source             = "../../modules/kubernetes"
  name               = var.name
  subnet_ids         = module.network.private_subnet_ids
  key_arn            = module.encryption.key_arn
  kubernetes_version = var.kubernetes_version
  instance_types     = var.instance_types
  nodes              = var.nodes
  namespace          = var.namespace
  service_account    = local.account
  workload_policy    = module.blobs.policy
}
