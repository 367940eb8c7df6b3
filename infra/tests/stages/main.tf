# All stages at once, each with the contracts of those below it: what the test applies with mocked providers. Real
# environments apply one stage after the other, and hand the contracts on as variables.

locals {
  name   = "oc-test"
  region = "eu-central-1"
}

module "identity" {
  source     = "../../stages/identity"
  name       = local.name
  region     = local.region
  public_url = "https://oc.example.com"
}

module "app" {
  source   = "../../stages/app"
  name     = local.name
  region   = local.region
  zones    = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
  upstream = { identity = module.identity.contract }
}

module "console" {
  source   = "../../stages/console"
  name     = local.name
  zone_id  = "Z0123456789"
  upstream = { app = module.app.contract, identity = module.identity.contract }
}

module "enterprise" {
  source        = "../../stages/enterprise"
  name          = local.name
  organisation  = "acme"
  node_role_arn = "arn:aws:iam::123456789012:role/oc-test-node"
  egress_hosts  = ["models.corp:8000", "10.2.0.0/16"]
  upstream      = { app = module.app.contract, console = module.console.contract }
}

module "lake" {
  source   = "../../stages/lake"
  name     = local.name
  upstream = { app = module.app.contract }
}

module "stats" {
  source   = "../../stages/stats"
  name     = local.name
  upstream = { app = module.app.contract, lake = module.lake.contract }
}

module "monitoring" {
  source      = "../../stages/monitoring"
  name        = local.name
  alert_email = "on-call@example.com"
  upstream    = { app = module.app.contract }
}

output "contracts" {
  value = {
    identity   = module.identity.contract
    app        = module.app.contract
    console    = module.console.contract
    enterprise = module.enterprise.contract
    lake       = module.lake.contract
    stats      = module.stats.contract
    monitoring = module.monitoring.contract
  }
}

output "helm_values" {
  value = {
    identity   = jsonencode(module.identity.helm_values)
    app        = jsonencode(module.app.helm_values)
    console    = jsonencode(module.console.helm_values)
    enterprise = jsonencode(module.enterprise.helm_values)
    lake       = jsonencode(module.lake.helm_values)
    stats      = jsonencode(module.stats.helm_values)
    monitoring = jsonencode(module.monitoring.helm_values)
  }
}
