# A Prometheus that is somebody else's work to keep, and a topic that its alerts go to.

variable "name" {
  type = string
}

variable "alert_email" {
  type = string

  validation {
    condition     = can(regex("^[^@ ]+@[^@ ]+$", var.alert_email))
    error_message = "alert_email must be an address, such as on-call@example.com."
  }
}

variable "key_arn" {
  type = string
}

variable "log_retention_days" {
  type = number
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/${var.name}/service"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.key_arn
}

resource "aws_prometheus_workspace" "this" {
  alias       = var.name
  kms_key_arn = var.key_arn
}

resource "aws_sns_topic" "alerts" {
  name              = "${var.name}-alerts"
  kms_master_key_id = var.key_arn
}

resource "aws_sns_topic_subscription" "email" {
  topic_arn = aws_sns_topic.alerts.arn
  protocol  = "email"
  endpoint  = var.alert_email
}

output "prometheus_url" {
  value = aws_prometheus_workspace.this.prometheus_endpoint
}

output "alerts_topic_arn" {
  value = aws_sns_topic.alerts.arn
}
