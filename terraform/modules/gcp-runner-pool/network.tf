# Nothing connects to a runner: agents and gitlab-runner connect to the outside. Networks
# have rules that let others in, such as SSH in a default one, mostly with a priority of
# 1000 or later; ours come before them.
resource "google_compute_firewall" "closed" {
  project                 = local.network_project
  network                 = var.network
  name                    = "${local.name}-closed"
  description             = "Nobody connects to runners of the Spillway pool ${var.pool_name}"
  direction               = "INGRESS"
  priority                = 900
  source_ranges           = ["0.0.0.0/0"]
  target_service_accounts = [google_service_account.runner.email]

  deny {
    protocol = "all"
  }
}

resource "google_compute_firewall" "metrics" {
  count = local.metrics ? 1 : 0

  project                 = local.network_project
  network                 = var.network
  name                    = "${local.name}-metrics"
  description             = "Metrics of gitlab-runner"
  direction               = "INGRESS"
  priority                = 800
  source_service_accounts = var.metrics_source_service_accounts
  target_service_accounts = [google_service_account.runner.email]

  allow {
    protocol = "tcp"
    ports    = ["9252"]
  }
}

locals {
  network_project = split("/", var.network)[1]
  narrowed        = !contains(var.egress_cidrs, "0.0.0.0/0")
}

# Everything may go out unless egress_cidrs says where to. The metadata server, and with it
# the name server, is always within reach.
resource "google_compute_firewall" "egress" {
  count = local.narrowed ? 1 : 0

  project                 = local.network_project
  network                 = var.network
  name                    = "${local.name}-egress"
  description             = "Control plane, GitLab, Google, and what jobs need"
  direction               = "EGRESS"
  priority                = 800
  destination_ranges      = var.egress_cidrs
  target_service_accounts = [google_service_account.runner.email]

  allow {
    protocol = "all"
  }
}

resource "google_compute_firewall" "no_egress" {
  count = local.narrowed ? 1 : 0

  project                 = local.network_project
  network                 = var.network
  name                    = "${local.name}-no-egress"
  description             = "Runners of the Spillway pool ${var.pool_name} connect to nobody else"
  direction               = "EGRESS"
  priority                = 900
  destination_ranges      = ["0.0.0.0/0"]
  target_service_accounts = [google_service_account.runner.email]

  deny {
    protocol = "all"
  }
}
