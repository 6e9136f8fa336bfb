locals {
  network_project = split("/", var.network)[1]

  # Where health checks come from, https://cloud.google.com/load-balancing/docs/health-check-concepts#ip-ranges
  probes = ["35.191.0.0/16", "130.211.0.0/22"]
}

# Networks have rules that let others in, such as SSH in a default one, mostly with a
# priority of 1000 or later; this one comes before them, and those that let in before it.
resource "google_compute_firewall" "closed" {
  project                 = local.network_project
  network                 = var.network
  name                    = "${var.name}-control-plane-closed"
  description             = "Nobody else connects to the Spillway control plane ${var.name}"
  direction               = "INGRESS"
  priority                = 900
  source_ranges           = ["0.0.0.0/0"]
  target_service_accounts = [google_service_account.replica.email]

  deny {
    protocol = "all"
  }
}

resource "google_compute_firewall" "probes" {
  project                 = local.network_project
  network                 = var.network
  name                    = "${var.name}-control-plane-probes"
  description             = "Health checks"
  direction               = "INGRESS"
  priority                = 800
  source_ranges           = local.probes
  target_service_accounts = [google_service_account.replica.email]

  allow {
    protocol = "tcp"
    ports    = ["7702"]
  }
}

resource "google_compute_firewall" "runners" {
  for_each = var.runner_service_accounts

  project                 = local.network_project
  network                 = var.network
  name                    = "${var.name}-runners-${each.key}"
  description             = "Runners: ${each.key}"
  direction               = "INGRESS"
  priority                = 800
  source_service_accounts = [each.value]
  target_service_accounts = [google_service_account.replica.email]

  allow {
    protocol = "tcp"
    ports    = [for port in local.for_runners : tostring(port)]
  }
}

resource "google_compute_firewall" "api" {
  count = length(var.api_cidrs) > 0 ? 1 : 0

  project                 = local.network_project
  network                 = var.network
  name                    = "${var.name}-api"
  description             = "API"
  direction               = "INGRESS"
  priority                = 800
  source_ranges           = var.api_cidrs
  target_service_accounts = [google_service_account.replica.email]

  allow {
    protocol = "tcp"
    ports    = ["7701"]
  }
}

resource "google_compute_firewall" "webhooks" {
  count = length(var.gitlab_cidrs) > 0 ? 1 : 0

  project                 = local.network_project
  network                 = var.network
  name                    = "${var.name}-webhooks"
  description             = "GitLab: webhooks"
  direction               = "INGRESS"
  priority                = 800
  source_ranges           = var.gitlab_cidrs
  target_service_accounts = [google_service_account.replica.email]

  allow {
    protocol = "tcp"
    ports    = [tostring(var.gitlab_ports.gitlab)]
  }
}

resource "google_compute_firewall" "between_replicas" {
  project                 = local.network_project
  network                 = var.network
  name                    = "${var.name}-control-plane-replicas"
  description             = "Other replicas"
  direction               = "INGRESS"
  priority                = 800
  source_service_accounts = [google_service_account.replica.email]
  target_service_accounts = [google_service_account.replica.email]

  allow {
    protocol = "tcp"
    ports    = [for port in local.for_replicas : tostring(port)]
  }
}
