# No account and no network: Google is mocked. What is asserted here is what the apply
# would ask for.
mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = { email = "spillway-linux@my-project.iam.gserviceaccount.com" }
  }
  mock_resource "google_project_iam_custom_role" {
    defaults = { id = "projects/my-project/roles/spillway_linux" }
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

# C27: nothing but Spillway may end an instance.
run "nobody_else_kills" {
  assert {
    condition     = google_compute_region_instance_group_manager.runners.update_policy[0].type == "OPPORTUNISTIC"
    error_message = "a new template replaces instances with jobs"
  }
  assert {
    condition     = google_compute_region_instance_group_manager.runners.update_policy[0].instance_redistribution_type == "NONE" && google_compute_region_instance_group_manager.runners.distribution_policy_target_shape == "ANY"
    error_message = "zones are evened out"
  }
  assert {
    condition     = length(google_compute_region_instance_group_manager.runners.auto_healing_policies) == 0
    error_message = "a health check that fails under a heavy job recreates its instance"
  }
  assert {
    condition     = length(google_compute_region_instance_group_manager.runners.stateful_disk) + length(google_compute_region_instance_group_manager.runners.stateful_external_ip) + length(google_compute_region_instance_group_manager.runners.stateful_internal_ip) + length(google_compute_region_instance_group_manager.runners.standby_policy) == 0
    error_message = "disks and addresses stay, or instances stand by"
  }
  assert {
    condition     = google_compute_region_instance_group_manager.runners.all_instances_config[0].labels["spillway-owner"] == "spillway" && google_compute_region_instance_template.runner.labels["spillway-owner"] == "spillway"
    error_message = "no owner: another control plane may take the group"
  }
}

# C31: the only bound is the pool's.
run "bounds" {
  variables {
    min_idle_runners = 3
  }
  assert {
    condition     = output.spillway_pool.policy.max == 20 && output.spillway_pool.policy.idle_count == 3
    error_message = "not the bounds that were given"
  }
}

run "max_zero_is_refused" {
  command = plan
  variables {
    max_runners = 0
  }
  expect_failures = [var.max_runners]
}

run "more_than_google_allows_is_refused" {
  command = plan
  variables {
    max_runners = 2001
  }
  expect_failures = [var.max_runners]
}

run "more_idle_than_max_is_refused" {
  command = plan
  variables {
    min_idle_runners = 21
  }
  expect_failures = [var.min_idle_runners]
}

# T14: no way in, no address outside, nothing that a key opens.
run "closed" {
  assert {
    condition     = google_compute_firewall.closed.direction == "INGRESS" && one(google_compute_firewall.closed.deny).protocol == "all" && google_compute_firewall.closed.priority < 1000
    error_message = "somebody else's rule lets others in"
  }
  assert {
    condition     = length(google_compute_firewall.metrics) == 0 && length(google_compute_region_instance_template.runner.network_interface[0].access_config) == 0
    error_message = "something may connect to the runners"
  }
  assert {
    condition     = google_compute_region_instance_template.runner.metadata["block-project-ssh-keys"] == "TRUE" && google_compute_region_instance_template.runner.metadata["enable-oslogin"] == "TRUE" && google_compute_region_instance_template.runner.metadata["serial-port-enable"] == "FALSE" && !contains(keys(google_compute_region_instance_template.runner.metadata), "ssh-keys")
    error_message = "a key of the project opens the runners"
  }
  assert {
    condition     = google_compute_region_instance_template.runner.shielded_instance_config[0].enable_secure_boot && google_compute_region_instance_template.runner.shielded_instance_config[0].enable_vtpm && google_compute_region_instance_template.runner.shielded_instance_config[0].enable_integrity_monitoring
    error_message = "not a shielded instance"
  }
  assert {
    condition     = alltrue([for rule in [google_compute_firewall.closed] : one(rule.target_service_accounts) == google_compute_region_instance_template.runner.service_account[0].email])
    error_message = "the rule is not for the instances' account"
  }
}

run "metrics_from_one_account" {
  variables {
    metrics_source_service_accounts = ["spillway-control-plane@my-project.iam.gserviceaccount.com"]
  }
  assert {
    condition     = one(google_compute_firewall.metrics[0].allow).ports[0] == "9252" && one(google_compute_firewall.metrics[0].source_service_accounts) == "spillway-control-plane@my-project.iam.gserviceaccount.com" && google_compute_firewall.metrics[0].priority < google_compute_firewall.closed.priority
    error_message = "not the metrics' port, from that account"
  }
}

run "egress" {
  variables {
    egress_cidrs = ["10.0.0.0/8", "199.36.153.8/30"]
  }
  assert {
    condition     = google_compute_firewall.egress[0].priority < google_compute_firewall.no_egress[0].priority && one(google_compute_firewall.no_egress[0].deny).protocol == "all"
    error_message = "the instances may connect to others"
  }
}

run "address_outside" {
  variables {
    external_address = true
  }
  assert {
    condition     = length(google_compute_region_instance_template.runner.network_interface[0].access_config) == 1
    error_message = "no address outside"
  }
}

run "on_demand" {
  assert {
    condition     = google_compute_region_instance_template.runner.scheduling[0].provisioning_model == "STANDARD" && google_compute_region_instance_template.runner.scheduling[0].on_host_maintenance == "MIGRATE" && google_compute_region_instance_template.runner.scheduling[0].automatic_restart
    error_message = "instances that Google ends"
  }
  assert {
    condition     = length(google_compute_region_instance_group_manager.runners.instance_flexibility_policy) == 0
    error_message = "one type is no choice"
  }
}

run "spot" {
  variables {
    spot          = true
    machine_types = ["n2-standard-2", "n2d-standard-2"]
  }
  assert {
    condition     = google_compute_region_instance_template.runner.scheduling[0].provisioning_model == "SPOT" && google_compute_region_instance_template.runner.scheduling[0].preemptible && !google_compute_region_instance_template.runner.scheduling[0].automatic_restart && google_compute_region_instance_template.runner.scheduling[0].on_host_maintenance == "TERMINATE"
    error_message = "not spot"
  }
  assert {
    condition     = length(one(google_compute_region_instance_group_manager.runners.instance_flexibility_policy[0].instance_selections).machine_types) == 2
    error_message = "Google may not choose"
  }
}

run "a_shared_network_has_the_rules" {
  variables {
    network = "projects/host-project/global/networks/shared"
  }
  assert {
    condition     = google_compute_firewall.closed.project == "host-project"
    error_message = "the rules are not in the network's project"
  }
}

run "observe_needs_gitlab" {
  command = plan
  variables {
    mode = "observe"
  }
  expect_failures = [var.gitlab]
}

run "a_secret_pattern_is_refused" {
  command = plan
  variables {
    tls_secret_id = "projects/my-project/secrets/*"
  }
  expect_failures = [var.tls_secret_id]
}

run "a_version_of_a_secret_is_refused" {
  command = plan
  variables {
    tls_secret_id = "projects/my-project/secrets/spillway-linux/versions/1"
  }
  expect_failures = [var.tls_secret_id]
}

run "a_download_without_tls_is_refused" {
  command = plan
  variables {
    agent = { url = "http://artifacts.example.com/spillway-agent", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
  }
  expect_failures = [var.agent]
}

run "a_subnet_elsewhere_is_refused" {
  command = plan
  variables {
    subnetwork = "projects/my-project/regions/us-east1/subnetworks/ci"
  }
  expect_failures = [var.subnetwork]
}

run "a_zone_elsewhere_is_refused" {
  command = plan
  variables {
    zones = ["us-east1-b"]
  }
  expect_failures = [var.zones]
}

run "a_name_that_no_account_can_have_is_refused" {
  command = plan
  variables {
    pool_name = "linux-of-the-whole-company"
  }
  expect_failures = [var.pool_name]
}

run "labels_that_keep_instances_are_refused" {
  command = plan
  variables {
    labels = { spillway-keep = "" }
  }
  expect_failures = [var.labels]
}
