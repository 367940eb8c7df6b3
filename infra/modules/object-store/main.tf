# A bucket that is closed to the public, encrypted, and reached by TLS only; and a policy for those who work in it.

variable "name" {
  type = string
}

variable "prefix" {
  type    = string
  default = ""
}

variable "key_arn" {
  type = string
}

variable "expire_days" {
  type        = number
  default     = 0
  description = "Days after which objects go; 0 keeps them."

  validation {
    condition     = var.expire_days >= 0 && floor(var.expire_days) == var.expire_days
    error_message = "expire_days must be a whole number of days, or 0."
  }
}

resource "aws_s3_bucket" "this" {
  bucket = var.name
}

resource "aws_s3_bucket_public_access_block" "this" {
  bucket                  = aws_s3_bucket.this.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  bucket = aws_s3_bucket.this.id
  rule {
    bucket_key_enabled = true
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = var.key_arn
    }
  }
}

resource "aws_s3_bucket_versioning" "this" {
  bucket = aws_s3_bucket.this.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  bucket = aws_s3_bucket.this.id
  # What the service deletes is gone after a week, also as an earlier version.
  rule {
    id     = "tidy"
    status = "Enabled"
    filter {}
    noncurrent_version_expiration {
      noncurrent_days = 7
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
  dynamic "rule" {
    for_each = var.expire_days > 0 ? [var.expire_days] : []
    content {
      id     = "expire"
      status = "Enabled"
      filter {
        prefix = var.prefix
      }
      expiration {
        days = rule.value
      }
    }
  }
}

resource "aws_s3_bucket_policy" "tls" {
  bucket = aws_s3_bucket.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "TlsOnly"
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:*"
      Resource  = [aws_s3_bucket.this.arn, "${aws_s3_bucket.this.arn}/*"]
      Condition = { Bool = { "aws:SecureTransport" = "false" } }
    }]
  })
}

output "url" {
  value = var.prefix == "" ? "s3://${var.name}" : "s3://${var.name}/${var.prefix}"
}

output "policy" {
  description = "What a role needs to work in it."
  value = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
        Resource = "${aws_s3_bucket.this.arn}/${var.prefix == "" ? "*" : "${var.prefix}/*"}"
      },
      { Effect = "Allow", Action = "s3:ListBucket", Resource = aws_s3_bucket.this.arn },
      { Effect = "Allow", Action = ["kms:Decrypt", "kms:GenerateDataKey"], Resource = var.key_arn },
    ]
  })
}
