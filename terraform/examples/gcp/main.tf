# A whole fleet in a network that is there: a control plane, a pool of spot instances, and
# one on demand for what spot has no capacity for.
terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 7.0"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = var.region
}

locals {
  owner = "ci-production"
}

module "spot" {
  source = "../../modules/gcp-runner-pool"

  pool_name        = "linux-spot"
  project_id       = var.project_id
  region           = var.region
  owner            = local.owner
  min_idle_runners = 1
  max_runners      = 20
  runner_image     = var.image
  coordinator_addr = "${var.coordinator_name}:7700"
  tls_secret_id    = var.secrets.spot
  network          = var.network
  subnetwork       = var.subnetwork
  spot             = true
  machine_types    = ["n2-standard-2", "n2d-standard-2"]
  capability       = { tags = ["linux"] }
  agent            = var.binaries.agent
}

module "on_demand" {
  source = "../../modules/gcp-runner-pool"

  pool_name        = "linux"
  project_id       = var.project_id
  region           = var.region
  owner            = local.owner
  max_runners      = 5
  priority         = 1
  runner_image     = var.image
  coordinator_addr = "${var.coordinator_name}:7700"
  tls_secret_id    = var.secrets.on_demand
  network          = var.network
  subnetwork       = var.subnetwork
  capability       = { tags = ["linux"] }
  agent            = var.binaries.agent
}

module "config" {
  source = "../../modules/spillway-config"

  pools         = [module.spot.spillway_pool, module.on_demand.spillway_pool]
  policies      = { linux-spot = { idle_time = "15m" } }
  plugin_sha256 = { spillway-provider-gcemig = var.binaries.plugin.sha256 }

  listen = {
    runners = "0.0.0.0:7700"
    api     = "0.0.0.0:7701"
    metrics = "0.0.0.0:7702"
    tls     = { cert_file = "/run/spillway/cert", key_file = "/run/spillway/key" }
  }

  redis = module.control_plane.redis

  settings = {
    access = [{ name = "ci", token = { file = "/run/spillway/api-token" }, roles = ["push", "read", "operate"] }]
  }
}

module "control_plane" {
  source = "../../modules/gcp-control-plane"

  project_id   = var.project_id
  region       = var.region
  zones        = var.zones
  config_yaml  = module.config.yaml
  secret_id    = var.secrets.control_plane
  controlplane = var.binaries.controlplane
  plugin       = var.binaries.plugin
  image        = var.image
  network      = var.network
  subnetwork   = var.subnetwork
  api_cidrs    = var.api_cidrs

  runner_service_accounts = { spot = module.spot.runner_service_account, on-demand = module.on_demand.runner_service_account }
}

# The name that runners dial, and that the certificate of the control plane is for.
resource "google_dns_record_set" "coordinator" {
  project      = var.project_id
  managed_zone = var.managed_zone
  name         = "${var.coordinator_name}."
  type         = "A"
  ttl          = 300
  rrdatas      = [module.control_plane.coordinator_address]
}
