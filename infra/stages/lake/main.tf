# Where raw usage is kept for questions that nobody thought of: a bucket of its own, and the right to write there.

module "bucket" {
  source      = "../../modules/object-store"
  name        = "${var.name}-lake"
  prefix      = "lake"
  key_arn     = var.upstream.app.key_arn
  expire_days = var.retention_days
}

resource "aws_iam_role_policy" "write" {
  name   = "lake"
  role   = var.upstream.app.workload_role
  policy = module.bucket.policy
}
