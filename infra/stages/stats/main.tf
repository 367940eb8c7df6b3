# Where pages of statistics read: a replica of the database, so that they never wait for sessions, nor sessions for them.

module "replica" {
  source         = "../../modules/postgres"
  name           = "${var.name}-stats"
  vpc_id         = var.upstream.app.vpc_id
  subnet_ids     = var.upstream.app.subnet_ids
  client_cidr    = var.upstream.app.cidr
  key_arn        = var.upstream.app.key_arn
  instance_class = var.instance_class
  storage_gb     = 100
  replica_of     = var.upstream.app.database_arn
}
