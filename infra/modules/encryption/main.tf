# One key for everything that the service stores.

variable "name" {
  type = string
}

resource "aws_kms_key" "this" {
  description             = "Data of ${var.name}"
  enable_key_rotation     = true
  deletion_window_in_days = 30
}

resource "aws_kms_alias" "this" {
  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.this.key_id
}

output "key_arn" {
  value = aws_kms_key.this.arn
}
