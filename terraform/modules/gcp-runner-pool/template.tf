locals {
  metrics = length(var.metrics_source_service_accounts) > 0

  gitlab = var.gitlab == null ? {} : {
    GITLAB_URL       = var.gitlab.url
    RUNNER_URL       = var.gitlab.runner_url
    RUNNER_SHA256    = var.gitlab.runner_sha256
    EXECUTOR         = var.gitlab.executor
    DOCKER_IMAGE     = var.gitlab.docker_image
    METRICS_LISTENER = local.metrics ? ":9252" : "127.0.0.1:9252"
  }

  agent = var.agent == null ? {} : {
    AGENT_URL    = var.agent.url
    AGENT_SHA256 = var.agent.sha256
  }

  # What boot.sh begins with. Every job can read it: no secret is in it.
  settings = merge(local.gitlab, local.agent, {
    MODE          = var.mode
    POOL          = var.pool_name
    ROUTER        = var.coordinator_addr
    CAPACITY      = tostring(var.jobs_per_instance)
    SECRET_ID     = var.tls_secret_id
    DRAIN_SECONDS = tostring(var.drain_timeout_seconds)
  })

  startup_script = join("\n", concat(
    ["#!/bin/bash", "# Boots a runner of the Spillway pool ${var.pool_name}."],
    [for name in sort(keys(local.settings)) : "${name}='${local.settings[name]}'"],
    [file("${path.module}/files/boot.sh")],
  ))
}

# Templates can't be changed: another one is made, and the group is told of it.
resource "google_compute_region_instance_template" "runner" {
  project      = var.project_id
  region       = var.region
  name_prefix  = "${local.name}-"
  description  = "Runners of the Spillway pool ${var.pool_name}"
  machine_type = var.machine_types[0]
  labels       = local.labels

  disk {
    boot         = true
    auto_delete  = true
    source_image = var.runner_image
    disk_type    = var.boot_disk.type
    disk_size_gb = var.boot_disk.size_gib
    labels       = local.labels

    dynamic "disk_encryption_key" {
      for_each = var.boot_disk.kms_key == null ? [] : [var.boot_disk.kms_key]
      content {
        kms_key_self_link = disk_encryption_key.value
      }
    }
  }

  network_interface {
    network    = var.network
    subnetwork = var.subnetwork

    # Without it there is no address outside.
    dynamic "access_config" {
      for_each = var.external_address ? [true] : []
      content {
        network_tier = "PREMIUM"
      }
    }
  }

  # What the account may do is in its roles; this scope leaves the decision to them.
  service_account {
    email  = google_service_account.runner.email
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = var.secure_boot
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  scheduling {
    provisioning_model          = var.spot ? "SPOT" : "STANDARD"
    preemptible                 = var.spot
    automatic_restart           = !var.spot
    on_host_maintenance         = var.spot || !var.live_migration ? "TERMINATE" : "MIGRATE"
    instance_termination_action = var.spot ? "DELETE" : null # the group makes another one
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
