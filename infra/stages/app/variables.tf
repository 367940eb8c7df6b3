variable "name" {
  type        = string
  description = "The name of everything in this environment, such as oc-prod."

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,30}$", var.name))
    error_message = "name must be 2 to 31 small letters, digits and dashes, and begin with a letter."
  }
}

variable "upstream" {
  description = "The contracts of the stages below this one."
  type = object({
    identity = object({ issuer = string, console_client_id = string, cli_client_id = string, public_url = string })
  })
}

variable "region" {
  type = string
}

variable "zones" {
  type = list(string)
}

variable "cidr" {
  type    = string
  default = "10.40.0.0/16"
}

variable "namespace" {
  type    = string
  default = "opencode-cloud"
}

variable "kubernetes_version" {
  type    = string
  default = "1.33"
}

variable "instance_types" {
  type    = list(string)
  default = ["m7i.xlarge"]
}

variable "nodes" {
  type    = object({ min = number, max = number })
  default = { min = 3, max = 12 }
}

variable "database" {
  type    = object({ instance_class = string, storage_gb = number })
  default = { instance_class = "db.m7g.large", storage_gb = 100 }
}
