# A pool for Google and the configuration of a control plane for it: what a person would
# write, in the smallest way.
terraform {
  required_providers {
    google = {
      source = "hashicorp/google"
    }
  }
}

variable "endpoint" {
  type = string
}

variable "token_dir" {
  type = string
}

variable "redis" {
  type = string
}

variable "plugin_dir" {
  type = string
}

variable "plugin_sha256" {
  type = string
}

module "linux" {
  source = "../modules/gcp-runner-pool"

  pool_name        = "linux"
  project_id       = "my-project"
  region           = "europe-west1"
  zones            = ["europe-west1-b", "europe-west1-c"]
  owner            = "ci-production"
  max_runners      = 5
  runner_image     = "projects/debian-cloud/global/images/family/debian-12"
  coordinator_addr = "spillway.internal:7700"
  tls_secret_id    = "projects/my-project/secrets/spillway-linux"
  network          = "projects/my-project/global/networks/ci"
  subnetwork       = "projects/my-project/regions/europe-west1/subnetworks/ci"
  capability       = { tags = ["linux"] }
  agent = {
    url    = "https://artifacts.example.com/spillway-agent"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  }
}

module "config" {
  source = "../modules/spillway-config"

  pools             = [module.linux.spillway_pool]
  policies          = { linux = { idle_time = "1s" } }
  provider_settings = { gce-europe-west1 = { endpoint = var.endpoint } }
  plugin_dir        = var.plugin_dir
  plugin_sha256     = { spillway-provider-gcemig = var.plugin_sha256 }
  token_dir         = var.token_dir
  listen            = { runners = "127.0.0.1:0", api = "127.0.0.1:0", metrics = "127.0.0.1:0" }
  redis             = { addrs = [var.redis] }
  settings          = { tick = "500ms" }
}

output "yaml" {
  value = module.config.yaml
}
