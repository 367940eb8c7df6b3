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
    app = object({
      region           = string
      vpc_id           = string
      subnet_ids       = list(string)
      cidr             = string
      cluster_name     = string
      namespace        = string
      workload_role    = string
      key_arn          = string
      blob_url         = string
      database_arn     = string
      database_secret  = string
      database_address = string
    })
    console = object({ public_url = string, certificate_arn = string })
  })
}

variable "organisation" {
  type = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,30}$", var.organisation))
    error_message = "organisation must be 2 to 31 small letters, digits and dashes, and begin with a letter."
  }
}

variable "node_role_arn" {
  type        = string
  description = "The role of its nodes."
}

variable "instance_types" {
  type    = list(string)
  default = ["m7i.xlarge"]
}

variable "egress_hosts" {
  type        = list(string)
  default     = []
  description = "Hosts inside that its sessions may reach, such as models.corp:8000."
}
