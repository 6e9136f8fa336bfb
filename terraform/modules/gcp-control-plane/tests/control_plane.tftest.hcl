# No account and no network: Google is mocked.
mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = { email = "spillway-control-plane@my-project.iam.gserviceaccount.com" }
  }
  mock_resource "google_compute_region_instance_group_manager" {
    defaults = { instance_group = "projects/my-project/regions/europe-west1/instanceGroups/spillway-control-plane" }
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
  project_id              = "my-project"
  region                  = "europe-west1"
  zones                   = ["europe-west1-b", "europe-west1-c"]
  config_yaml             = "pools: []\n"
  secret_id               = "projects/my-project/secrets/spillway-control-plane"
  image                   = "projects/debian-cloud/global/images/family/debian-12"
  network                 = "projects/my-project/global/networks/ci"
  subnetwork              = "projects/my-project/regions/europe-west1/subnetworks/ci"
  runner_service_accounts = { linux = "spillway-linux@my-project.iam.gserviceaccount.com" }
  controlplane = {
    url    = "https://artifacts.example.com/controlplane"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  }
  plugin = {
    url    = "https://artifacts.example.com/spillway-provider-gcemig"
    sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
  }
}

run "control_plane" {
  assert {
    condition     = google_compute_region_instance_group_manager.replicas.target_size == 2
    error_message = "not two replicas"
  }
  assert {
    condition     = google_compute_region_instance_group_manager.replicas.update_policy[0].max_unavailable_fixed == 0 && google_compute_region_instance_group_manager.replicas.update_policy[0].max_surge_fixed == 2
    error_message = "replicas go before others are there"
  }
  assert {
    condition     = google_redis_instance.redis.transit_encryption_mode == "SERVER_AUTHENTICATION" && google_redis_instance.redis.auth_enabled && google_redis_instance.redis.tier == "STANDARD_HA"
    error_message = "Redis without TLS, without a password, or without a second node"
  }
  assert {
    condition     = google_redis_instance.redis.redis_configs["maxmemory-policy"] == "noeviction"
    error_message = "a full Redis would drop jobs"
  }
  assert {
    condition     = output.redis.addrs[0] == "10.0.0.8:6378" && output.redis.tls.ca_file == "/run/spillway/redis_ca"
    error_message = "the replicas do not find Redis, or do not know its authority"
  }
  assert {
    condition     = google_compute_forwarding_rule.internal.load_balancing_scheme == "INTERNAL" && length(google_compute_firewall.api) == 0 && length(google_compute_firewall.webhooks) == 0
    error_message = "reachable by somebody who was not named"
  }
  assert {
    condition     = one(google_compute_firewall.closed.deny).protocol == "all" && length(google_compute_region_instance_template.replica.network_interface[0].access_config) == 0
    error_message = "reachable by somebody who was not named"
  }
  assert {
    condition     = one(google_compute_firewall.runners["linux"].source_service_accounts) == "spillway-linux@my-project.iam.gserviceaccount.com" && jsonencode(one(google_compute_firewall.runners["linux"].allow).ports) == jsonencode(["7700"])
    error_message = "runners do not reach their port, and that one only"
  }
  assert {
    condition     = google_compute_health_check.replicas["ready"].https_health_check[0].request_path == "/readyz" && google_compute_health_check.replicas["alive"].https_health_check[0].request_path == "/healthz"
    error_message = "a replica that only waits for Redis is made anew"
  }
  assert {
    condition     = google_compute_region_instance_template.replica.shielded_instance_config[0].enable_secure_boot && google_compute_region_instance_template.replica.metadata["block-project-ssh-keys"] == "TRUE"
    error_message = "not a shielded instance"
  }
  assert {
    condition     = jsonencode(output.replica_names) == jsonencode(["*.europe-west1-b.c.my-project.internal", "*.europe-west1-c.c.my-project.internal"])
    error_message = "not the names of Google's name server"
  }
}

run "ports_of_gitlab" {
  variables {
    gitlab_ports = { gitlab = 7703, job_router = 7704 }
    gitlab_cidrs = ["203.0.113.0/24"]
    api_cidrs    = ["10.0.0.0/8"]
  }
  assert {
    condition     = length(setsubtract(["7700", "7701", "7703", "7704"], google_compute_forwarding_rule.internal.ports)) == 0
    error_message = "the balancer does not pass on what the replicas listen to"
  }
  assert {
    condition     = jsonencode(sort(one(google_compute_firewall.runners["linux"].allow).ports)) == jsonencode(["7700", "7703", "7704"])
    error_message = "runners do not reach GitLab's ports"
  }
  assert {
    condition     = jsonencode(one(google_compute_firewall.webhooks[0].allow).ports) == jsonencode(["7703"]) && jsonencode(one(google_compute_firewall.api[0].allow).ports) == jsonencode(["7701"])
    error_message = "webhooks or people reach another port"
  }
  assert {
    condition     = jsonencode(sort(one(google_compute_firewall.between_replicas.allow).ports)) == jsonencode(["7701", "7704"])
    error_message = "replicas do not reach each other"
  }
}

run "webhooks_without_a_listener_are_refused" {
  command = plan
  variables {
    gitlab_cidrs = ["203.0.113.0/24"]
  }
  expect_failures = [var.gitlab_cidrs]
}

run "one_zone_is_refused" {
  command = plan
  variables {
    zones = ["europe-west1-b"]
  }
  expect_failures = [var.zones]
}

run "a_secret_pattern_is_refused" {
  command = plan
  variables {
    secret_id = "projects/my-project/secrets/*"
  }
  expect_failures = [var.secret_id]
}

run "a_name_that_no_account_can_have_is_refused" {
  command = plan
  variables {
    name = "spillway-of-the-company"
  }
  expect_failures = [var.name]
}
