# A Postgres that survives a zone, whose administrator's password nobody types: it is made, kept and rotated beside it.

variable "name" {
  type = string
}

variable "vpc_id" {
  type = string
}

variable "subnet_ids" {
  type = list(string)
}

variable "client_cidr" {
  type        = string
  description = "The addresses that may connect."
}

variable "key_arn" {
  type = string
}

variable "instance_class" {
  type = string
}

variable "storage_gb" {
  type = number

  validation {
    condition     = var.storage_gb >= 20
    error_message = "storage_gb must be at least 20."
  }
}

variable "replica_of" {
  type        = string
  default     = null
  description = "The ARN of a database to follow, for one that is only read."
}

resource "aws_security_group" "this" {
  name        = "${var.name}-postgres"
  description = "Connections of the service to its Postgres"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "postgres" {
  security_group_id = aws_security_group.this.id
  description       = "Pods of the service"
  cidr_ipv4         = var.client_cidr
  from_port         = 5432
  to_port           = 5432
  ip_protocol       = "tcp"
}

resource "aws_db_subnet_group" "this" {
  name       = var.name
  subnet_ids = var.subnet_ids
}

resource "aws_db_parameter_group" "this" {
  name   = var.name
  family = "postgres16"
  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }
}

resource "aws_db_instance" "this" {
  identifier                      = var.name
  engine                          = "postgres"
  engine_version                  = "16"
  replicate_source_db             = var.replica_of
  db_name                         = var.replica_of == null ? "opencode_cloud" : null
  username                        = var.replica_of == null ? "postgres" : null
  manage_master_user_password     = var.replica_of == null ? true : null
  master_user_secret_kms_key_id   = var.replica_of == null ? var.key_arn : null
  instance_class                  = var.instance_class
  allocated_storage               = var.replica_of == null ? var.storage_gb : null
  max_allocated_storage           = var.storage_gb * 10
  storage_type                    = "gp3"
  storage_encrypted               = true
  kms_key_id                      = var.key_arn
  db_subnet_group_name            = aws_db_subnet_group.this.name
  parameter_group_name            = aws_db_parameter_group.this.name
  vpc_security_group_ids          = [aws_security_group.this.id]
  multi_az                        = var.replica_of == null
  backup_retention_period         = var.replica_of == null ? 30 : 0
  copy_tags_to_snapshot           = true
  deletion_protection             = true
  auto_minor_version_upgrade      = true
  performance_insights_enabled    = true
  performance_insights_kms_key_id = var.key_arn
  enabled_cloudwatch_logs_exports = ["postgresql", "upgrade"]
  skip_final_snapshot             = var.replica_of != null
  final_snapshot_identifier       = var.replica_of == null ? "${var.name}-last" : null
}

output "arn" {
  value = aws_db_instance.this.arn
}

output "address" {
  value = aws_db_instance.this.address
}

output "secret_arn" {
  description = "The secret with the administrator's password; none for a replica, which has its source's."
  value       = var.replica_of == null ? aws_db_instance.this.master_user_secret[0].secret_arn : null
}
