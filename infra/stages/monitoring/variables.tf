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
  })
}

variable "alert_email" {
  type = string
}

variable "log_retention_days" {
  type    = number
  default = 30
}
