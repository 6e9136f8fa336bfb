locals {
  labels = merge(var.labels, { spillway-control-plane = var.name })

  settings = {
    SECRET_ID           = var.secret_id
    REDIS_ID            = google_secret_manager_secret.made["redis"].id
    CONFIG_ID           = google_secret_manager_secret.made["config"].id
    CONTROLPLANE_URL    = var.controlplane.url
    CONTROLPLANE_SHA256 = var.controlplane.sha256
    PLUGIN_URL          = var.plugin.url
    PLUGIN_SHA256       = var.plugin.sha256
  }

  startup_script = join("\n", concat(
    ["#!/bin/bash", "# Boots a replica of the Spillway control plane ${var.name}."],
    [for name in sort(keys(local.settings)) : "${name}='${local.settings[name]}'"],
    [file("${path.module}/files/boot.sh")],
  ))
}

resource "google_compute_region_instance_template" "replica" {
  project      = var.project_id
  region       = var.region
  name_prefix  = "${var.name}-control-plane-"
  description  = "Replicas of the Spillway control plane ${var.name}"
  machine_type = var.machine_type
  labels       = local.labels

  disk {
    boot         = true
    auto_delete  = true
    source_image = var.image
    disk_type    = "pd-balanced"
    labels       = local.labels
  }

  network_interface {
    network    = var.network
    subnetwork = var.subnetwork
  }

  # What the account may do is in its roles; this scope leaves the decision to them.
  service_account {
    email  = google_service_account.replica.email
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = {
    startup-script         = local.startup_script
    block-project-ssh-keys = "TRUE"
    enable-oslogin         = "TRUE" # logins are a matter of IAM, not of keys in metadata
    serial-port-enable     = "FALSE"
  }

  lifecycle {
    create_before_destroy = true
  }
}

# Two replicas, whatever happens: each pool has one owner among them, and the other one
# takes over. Their instances have no owner label that the plugin would know.
resource "google_compute_region_instance_group_manager" "replicas" {
  project            = var.project_id
  region             = var.region
  name               = "${var.name}-control-plane"
  description        = "Replicas of the Spillway control plane ${var.name}"
  base_instance_name = "${var.name}-control-plane"
  target_size        = 2
  wait_for_instances = false

  distribution_policy_zones = var.zones

  version {
    instance_template = google_compute_region_instance_template.replica.id
  }

  auto_healing_policies {
    health_check      = google_compute_health_check.replicas["alive"].id
    initial_delay_sec = 300
  }

  # A new version is there, and answers, before an old one goes. In a regional group Google
  # wants as many new ones at a time as there are zones.
  update_policy {
    type                  = "PROACTIVE"
    minimal_action        = "REPLACE"
    replacement_method    = "SUBSTITUTE"
    max_surge_fixed       = length(var.zones)
    max_unavailable_fixed = 0
  }
}
