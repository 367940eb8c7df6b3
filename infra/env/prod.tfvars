# An example for the stage app.
name               = "oc-prod"
region             = "eu-central-1"
zones              = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
kubernetes_version = "1.33"
nodes              = { min = 3, max = 20 }
database           = { instance_class = "db.r7g.xlarge", storage_gb = 500 }
