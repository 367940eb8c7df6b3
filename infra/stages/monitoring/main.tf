# Who watches: a Prometheus, logs, and a topic for alerts.

module "observability" {
  source             = "../../modules/observability"
  name               = var.name
  key_arn            = var.upstream.app.key_arn
  alert_email        = var.alert_email
  log_retention_days = var.log_retention_days
}
