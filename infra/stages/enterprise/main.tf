# One organisation apart from others: nodes of its own with the strongest sandbox, and the hosts that its commands may reach.

resource "aws_eks_node_group" "own" {
  cluster_name    = var.upstream.app.cluster_name
  node_group_name = "${var.name}-${var.organisation}"
  node_role_arn   = var.node_role_arn
  subnet_ids      = var.upstream.app.subnet_ids
  instance_types  = var.instance_types
  labels          = { "opencode-cloud/organisation" = var.organisation }
  taint {
    key    = "opencode-cloud/organisation"
    value  = var.organisation
    effect = "NO_SCHEDULE"
  }
  scaling_config {
    min_size     = 1
    max_size     = 6
    desired_size = 1
  }
}
