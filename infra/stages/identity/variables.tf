variable "name" {
  type        = string
  description = "The name of everything in this environment, such as oc-prod."

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,30}$", var.name))
    error_message = "name must be 2 to 31 small letters, digits and dashes, and begin with a letter."
  }
}

variable "region" {
  type = string
}

variable "public_url" {
  type        = string
  description = "The address of the service, which its sign-in returns to."

  validation {
    condition     = can(regex("^https://[^/]+$", var.public_url))
    error_message = "public_url must be https:// and a host, without a path."
  }
}

variable "issuer" {
  type    = object({ url = string, console_client_id = string, cli_client_id = string })
  default = null
}
