# People's accounts: an issuer of your own, or a pool here. Either way two clients, of which one keeps a secret.

variable "name" {
  type = string
}

variable "public_url" {
  type = string
}

variable "issuer" {
  type        = object({ url = string, console_client_id = string, cli_client_id = string })
  default     = null
  description = "An issuer that there is already; no pool is made then."

  validation {
    condition     = var.issuer == null || startswith(try(var.issuer.url, ""), "https://")
    error_message = "issuer.url must begin with https://."
  }
}

variable "region" {
  type = string
}

locals {
  own = var.issuer == null ? 1 : 0
}

resource "aws_cognito_user_pool" "this" {
  count                    = local.own
  name                     = var.name
  username_attributes      = ["email"]
  auto_verified_attributes = ["email"]
  deletion_protection      = "ACTIVE"
  mfa_configuration        = "OPTIONAL"
  software_token_mfa_configuration {
    enabled = true
  }
  admin_create_user_config {
    allow_admin_create_user_only = true
  }
  password_policy {
    minimum_length                   = 12
    require_lowercase                = true
    require_numbers                  = true
    require_symbols                  = false
    require_uppercase                = true
    temporary_password_validity_days = 7
  }
}

resource "aws_cognito_user_pool_client" "console" {
  count                                = local.own
  name                                 = "console"
  user_pool_id                         = aws_cognito_user_pool.this[0].id
  generate_secret                      = true
  allowed_oauth_flows_user_pool_client = true
  allowed_oauth_flows                  = ["code"]
  allowed_oauth_scopes                 = ["openid", "email", "profile"]
  callback_urls                        = ["${var.public_url}/login/callback/main"]
  supported_identity_providers         = ["COGNITO"]
}

resource "aws_cognito_user_pool_client" "cli" {
  count                                = local.own
  name                                 = "cli"
  user_pool_id                         = aws_cognito_user_pool.this[0].id
  generate_secret                      = false
  allowed_oauth_flows_user_pool_client = true
  allowed_oauth_flows                  = ["code"]
  allowed_oauth_scopes                 = ["openid", "email", "profile"]
  callback_urls                        = ["http://127.0.0.1/callback"]
  supported_identity_providers         = ["COGNITO"]
}

output "issuer" {
  value = local.own == 1 ? "https://cognito-idp.${var.region}.amazonaws.com/${aws_cognito_user_pool.this[0].id}" : var.issuer.url
}

output "console_client_id" {
  value = local.own == 1 ? aws_cognito_user_pool_client.console[0].id : var.issuer.console_client_id
}

output "cli_client_id" {
  value = local.own == 1 ? aws_cognito_user_pool_client.cli[0].id : var.issuer.cli_client_id
}
