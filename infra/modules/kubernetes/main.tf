# A cluster with one group of nodes, and a role that its pods take on without keys.

variable "name" {
  type = string
}

variable "subnet_ids" {
  type = list(string)
}

variable "key_arn" {
  type = string
}

variable "kubernetes_version" {
  type = string

  validation {
    condition     = can(regex("^1\\.(3[1-9]|[4-9][0-9])$", var.kubernetes_version))
    error_message = "kubernetes_version must be 1.31 or later, which the chart needs."
  }
}

variable "instance_types" {
  type = list(string)
}

variable "nodes" {
  type = object({ min = number, max = number })

  validation {
    condition     = var.nodes.min >= 1 && var.nodes.max >= var.nodes.min
    error_message = "nodes.min must be at least 1, and nodes.max at least nodes.min."
  }
}

variable "namespace" {
  type = string
}

variable "service_account" {
  type = string
}

variable "workload_policy" {
  type        = string
  description = "What the service's pods may do, as the JSON of a policy."
}

locals {
  assume = {
    for who in ["eks", "ec2", "pods.eks"] : who => jsonencode({
      Version = "2012-10-17"
      Statement = [{
        Effect    = "Allow"
        Principal = { Service = "${who}.amazonaws.com" }
        Action    = who == "pods.eks" ? ["sts:AssumeRole", "sts:TagSession"] : ["sts:AssumeRole"]
      }]
    })
  }
}

resource "aws_iam_role" "cluster" {
  name               = "${var.name}-cluster"
  assume_role_policy = local.assume["eks"]
}

resource "aws_iam_role_policy_attachment" "cluster" {
  role       = aws_iam_role.cluster.name
  policy_arn = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
}

resource "aws_eks_cluster" "this" {
  name                      = var.name
  role_arn                  = aws_iam_role.cluster.arn
  version                   = var.kubernetes_version
  enabled_cluster_log_types = ["api", "audit", "authenticator"]
  vpc_config {
    subnet_ids              = var.subnet_ids
    endpoint_private_access = true
    endpoint_public_access  = false
  }
  encryption_config {
    resources = ["secrets"]
    provider {
      key_arn = var.key_arn
    }
  }
  access_config {
    authentication_mode = "API"
  }
  depends_on = [aws_iam_role_policy_attachment.cluster]
}

resource "aws_iam_role" "node" {
  name               = "${var.name}-node"
  assume_role_policy = local.assume["ec2"]
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each   = toset(["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"])
  role       = aws_iam_role.node.name
  policy_arn = "arn:aws:iam::aws:policy/${each.key}"
}

resource "aws_eks_node_group" "this" {
  cluster_name    = aws_eks_cluster.this.name
  node_group_name = var.name
  node_role_arn   = aws_iam_role.node.arn
  subnet_ids      = var.subnet_ids
  instance_types  = var.instance_types
  scaling_config {
    min_size     = var.nodes.min
    max_size     = var.nodes.max
    desired_size = var.nodes.min
  }
  update_config {
    max_unavailable = 1
  }
  depends_on = [aws_iam_role_policy_attachment.node]
}

resource "aws_eks_addon" "this" {
  for_each     = toset(["eks-pod-identity-agent", "aws-ebs-csi-driver"])
  cluster_name = aws_eks_cluster.this.name
  addon_name   = each.key
  depends_on   = [aws_eks_node_group.this]
}

resource "aws_iam_role" "workload" {
  name               = "${var.name}-workload"
  assume_role_policy = local.assume["pods.eks"]
}

resource "aws_iam_role_policy" "workload" {
  name   = "service"
  role   = aws_iam_role.workload.id
  policy = var.workload_policy
}

resource "aws_eks_pod_identity_association" "workload" {
  cluster_name    = aws_eks_cluster.this.name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.workload.arn
}

output "cluster_name" {
  value = aws_eks_cluster.this.name
}

output "workload_role_name" {
  value = aws_iam_role.workload.name
}
