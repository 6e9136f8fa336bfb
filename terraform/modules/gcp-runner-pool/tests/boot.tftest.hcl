# No account and no network: Google is mocked. What these runs make is read by the
# Go tests: the startup script of each mode, and roles.
mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = { email = "spillway-linux@my-project.iam.gserviceaccount.com" }
  }
  mock_resource "google_compute_region_instance_template" {
    defaults = { id = "projects/my-project/regions/europe-west1/instanceTemplates/spillway-linux-20260101" }
  }
  mock_resource "google_compute_region_instance_group_manager" {
    defaults = { id = "projects/my-project/regions/europe-west1/instanceGroupManagers/spillway-linux", target_size = 0 }
  }
}

variables {
  pool_name        = "linux"
  project_id       = "my-project"
  region           = "europe-west1"
  max_runners      = 20
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

run "orchestrate" {
  variables {
    jobs_per_instance = 2
  }
  assert {
    condition     = output.spillway_pool.drain == null
    error_message = "an agent that runs the jobs needs no other proof"
  }
}

run "observe" {
  variables {
    mode                            = "observe"
    metrics_source_service_accounts = ["spillway-control-plane@my-project.iam.gserviceaccount.com"]
    gitlab = {
      url           = "https://gitlab.example.com"
      runner_url    = "https://artifacts.example.com/gitlab-runner"
      runner_sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
      executor      = "docker"
    }
  }
  assert {
    condition     = output.spillway_pool.drain == "sidecar" && output.spillway_pool.metrics_port == 9252
    error_message = "nothing stops the runners, or nobody reads their metrics"
  }
}

run "route" {
  variables {
    mode  = "route"
    agent = null
    gitlab = {
      url           = "https://gitlab.example.com"
      runner_url    = "https://artifacts.example.com/gitlab-runner"
      runner_sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
    }
  }
  assert {
    condition     = output.spillway_pool.drain == null
    error_message = "Spillway hands the jobs out itself"
  }
}
