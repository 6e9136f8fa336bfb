locals {
  gitlab = { for name, port in { gitlab = var.gitlab_ports.gitlab, router = var.gitlab_ports.job_router } : name => port if port != null }

  # What runners reach, and what replicas reach at each other: sessions with running jobs
  # (spillwayctl job exec), and jobs of GitLab whose runner asked another replica.
  for_runners  = concat([7700], values(local.gitlab))
  for_replicas = concat([7701], [for name, port in local.gitlab : port if name == "router"])
}

# A passthrough balancer: packets reach the replicas as they were sent. TLS ends there, so
# that certificates of clients reach them, and the firewall knows who the sender is.
resource "google_compute_address" "internal" {
  project      = var.project_id
  region       = var.region
  name         = var.name
  description  = "Spillway control plane ${var.name}"
  address_type = "INTERNAL"
  subnetwork   = var.subnetwork
}

resource "google_compute_forwarding_rule" "internal" {
  project               = var.project_id
  region                = var.region
  name                  = var.name
  description           = "Spillway control plane ${var.name}"
  load_balancing_scheme = "INTERNAL"
  ip_protocol           = "TCP"
  ip_address            = google_compute_address.internal.id
  ports                 = [for port in concat([7701], local.for_runners) : tostring(port)]
  network               = var.network
  subnetwork            = var.subnetwork
  backend_service       = google_compute_region_backend_service.replicas.id
  allow_global_access   = var.global_access
}

resource "google_compute_region_backend_service" "replicas" {
  project                         = var.project_id
  region                          = var.region
  name                            = var.name
  description                     = "Replicas of the Spillway control plane ${var.name}"
  load_balancing_scheme           = "INTERNAL"
  protocol                        = "TCP"
  health_checks                   = [google_compute_health_check.replicas["ready"].id]
  connection_draining_timeout_sec = 60

  backend {
    group          = google_compute_region_instance_group_manager.replicas.instance_group
    balancing_mode = "CONNECTION"
  }
}

# ready: who gets connections. alive: which replica is to be made anew; one that is not
# ready, because Redis is away, is not.
resource "google_compute_health_check" "replicas" {
  for_each = {
    ready = { path = "/readyz", every = 10, failures = 2 }
    alive = { path = "/healthz", every = 30, failures = 10 }
  }

  project             = var.project_id
  name                = "${var.name}-${each.key}"
  description         = "Replicas of the Spillway control plane ${var.name}: ${each.key}"
  check_interval_sec  = each.value.every
  timeout_sec         = 5
  healthy_threshold   = 2
  unhealthy_threshold = each.value.failures

  https_health_check {
    port         = 7702
    request_path = each.value.path
  }
}
