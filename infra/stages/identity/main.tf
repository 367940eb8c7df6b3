# Who people are: a pool of accounts, or an issuer that you have.

module "identity" {
  source     = "../../modules/identity"
  name       = var.name
  region     = var.region
  public_url = var.public_url
  issuer     = var.issuer
}
