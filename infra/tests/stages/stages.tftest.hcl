mock_provider "aws" {
  mock_resource "aws_acm_certificate" {
    defaults = {
      arn = "arn:aws:acm:eu-central-1:123456789012:certificate/11111111-1111-1111-1111-111111111111"
      domain_validation_options = [{
        domain_name           = "oc.example.com"
        resource_record_name  = "_proof.oc.example.com"
        resource_record_type  = "CNAME"
        resource_record_value = "_value.acm.example"
      }]
    }
  }
  mock_resource "aws_db_instance" {
    defaults = {
      arn                = "arn:aws:rds:eu-central-1:123456789012:db:oc-test"
      address            = "oc-test.db.example"
      master_user_secret = [{ secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:oc-test" }]
    }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/mocked" }
  }
  mock_resource "aws_kms_key" {
    defaults = { arn = "arn:aws:kms:eu-central-1:123456789012:key/11111111-1111-1111-1111-111111111111" }
  }
  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::mocked" }
  }
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-central-1:123456789012:mocked" }
  }
}

run "plan" {
  command = plan
}

run "apply" {
  command = apply

  assert {
    condition     = output.contracts.app.blob_url == "s3://oc-test-blobs/oc"
    error_message = "the app stage names its bucket"
  }
  assert {
    condition     = output.contracts.console.public_url == "https://oc.example.com"
    error_message = "the console stage takes the address of the identity stage"
  }
  assert {
    condition     = output.contracts.stats.database_secret == output.contracts.app.database_secret
    error_message = "a replica has the accounts of its source"
  }
}
