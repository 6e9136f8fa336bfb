# No account and no network: Google is mocked.
mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = { email = "spillway@my-project.iam.gserviceaccount.com" }
  }
  mock_resource "google_project_iam_custom_role" {
    defaults = { id = "projects/my-project/roles/spillway" }
  }
  mock_resource "google_compute_address" {
    defaults = { address = "10.0.0.7" }
  }
  mock_resource "google_redis_instance" {
    defaults = {
      host            = "10.0.0.8"
      port            = 6378
      auth_string     = "not-a-real-token-of-anybody"
      server_ca_certs = [{ cert = "CA", create_time = "", expire_time = "", serial_number = "", sha1_fingerprint = "" }]
    }
  }
}

variables {
  project_id       = "my-project"
  region           = "europe-west1"
  zones            = ["europe-west1-b", "europe-west1-c"]
  network          = "projects/my-project/global/networks/ci"
  subnetwork       = "projects/my-project/regions/europe-west1/subnetworks/ci"
  managed_zone     = "example"
  coordinator_name = "spillway.example.com"
  image            = "projects/debian-cloud/global/images/family/debian-12"
  secrets = {
    control_plane = "projects/my-project/secrets/spillway-control-plane"
    spot          = "projects/my-project/secrets/spillway-linux-spot"
    on_demand     = "projects/my-project/secrets/spillway-linux"
  }
  binaries = {
    agent        = { url = "https://artifacts.example.com/spillway-agent", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
    controlplane = { url = "https://artifacts.example.com/controlplane", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
    plugin       = { url = "https://artifacts.example.com/spillway-provider-gcemig", sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752" }
  }
}

run "fleet" {
  assert {
    condition     = jsonencode(yamldecode(output.spillway_yaml).pools[*].name) == jsonencode(["linux-spot", "linux"])
    error_message = "a pool of Terraform is none of Spillway's"
  }
  assert {
    condition     = jsonencode(yamldecode(output.spillway_yaml).providers.gce-europe-west1.config) == jsonencode({ groups = ["spillway-linux", "spillway-linux-spot"], owner = "ci-production", project = "my-project", region = "europe-west1" })
    error_message = "not one provider with both groups"
  }
  assert {
    condition     = yamldecode(output.spillway_yaml).store.redis.tls.ca_file == "/run/spillway/redis_ca"
    error_message = "Redis's authority is not known"
  }
}
