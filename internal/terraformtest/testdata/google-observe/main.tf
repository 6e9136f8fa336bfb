# A pool and a control plane that need each other: the pool lets the replicas read its
# runners' metrics, and the replicas have the pool in their configuration.
terraform {
  required_providers {
    google = {
      source = "hashicorp/google"
    }
  }
}

locals {
  place = {
    project_id = "my-project"
    region     = "europe-west1"
    image      = "projects/debian-cloud/global/images/family/debian-12"
    network    = "projects/my-project/global/networks/ci"
    subnetwork = "projects/my-project/regions/europe-west1/subnetworks/ci"
  }
  binary = {
    url    = "https://artifacts.example.com/binary"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  }
}

module "gitlab" {
  source = "../modules/gcp-runner-pool"

  pool_name        = "gitlab"
  mode             = "observe"
  project_id       = local.place.project_id
  region           = local.place.region
  max_runners      = 5
  runner_image     = local.place.image
  coordinator_addr = "${module.control_plane.coordinator_address}:7700"
  tls_secret_id    = "projects/my-project/secrets/spillway-gitlab"
  network          = local.place.network
  subnetwork       = local.place.subnetwork
  capability       = { tags = ["docker"] }
  agent            = local.binary
  gitlab           = { url = "https://gitlab.example.com", runner_url = local.binary.url, runner_sha256 = local.binary.sha256 }

  metrics_source_service_accounts = [module.control_plane.service_account]
}

module "config" {
  source = "../modules/spillway-config"

  pools    = [module.gitlab.spillway_pool]
  redis    = module.control_plane.redis
  settings = { gitlab = { url = "https://gitlab.example.com" } }
}

module "control_plane" {
  source = "../modules/gcp-control-plane"

  project_id   = local.place.project_id
  region       = local.place.region
  zones        = ["europe-west1-b", "europe-west1-c"]
  config_yaml  = module.config.yaml
  secret_id    = "projects/my-project/secrets/spillway-control-plane"
  controlplane = local.binary
  plugin       = local.binary
  image        = local.place.image
  network      = local.place.network
  subnetwork   = local.place.subnetwork

  runner_service_accounts = { gitlab = module.gitlab.runner_service_account }
}

output "yaml" {
  value = module.config.yaml
}
