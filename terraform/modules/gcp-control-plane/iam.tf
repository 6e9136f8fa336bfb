resource "google_service_account" "replica" {
  project      = var.project_id
  account_id   = "${var.name}-control-plane"
  display_name = "Replicas of the Spillway control plane ${var.name}"
}

locals {
  role_prefix = replace("${var.name}-control-plane", "-", "_") # a role's id has no -

  # By what they are for. Each is bound where it is needed and nowhere else.
  permissions = {
    # What the plugin calls, of docs/gcp.md. Nothing to change a group's settings past a
    # resize, to end instances but by their group, or to act as another account.
    scale = [
      "compute.autoscalers.get",
      "compute.instanceGroupManagers.get",
      "compute.instanceGroupManagers.list",
      "compute.instanceGroupManagers.update",
      "compute.instances.list",
      "compute.regionOperations.get",
      "compute.zoneOperations.get",
      "compute.zoneOperations.list",
    ]
    secret = ["secretmanager.versions.access"]
    logs   = ["logging.logEntries.create"]
  }

  secrets = {
    given  = var.secret_id
    redis  = google_secret_manager_secret.made["redis"].id
    config = google_secret_manager_secret.made["config"].id
  }
}

resource "google_project_iam_custom_role" "replica" {
  for_each = local.permissions

  project     = var.project_id
  role_id     = "${local.role_prefix}_${each.key}"
  title       = "Spillway control plane ${var.name}: ${each.key}"
  permissions = each.value
}

# Google has no condition by which a role could be for some groups of a project only: the
# plugin's settings groups and owner are what keeps it to its own.
resource "google_project_iam_member" "replica" {
  for_each = toset(["scale", "logs"])

  project = var.project_id
  role    = google_project_iam_custom_role.replica[each.key].id
  member  = "serviceAccount:${google_service_account.replica.email}"
}

resource "google_secret_manager_secret_iam_member" "replica" {
  for_each = local.secrets

  secret_id = each.value
  role      = google_project_iam_custom_role.replica["secret"].id
  member    = "serviceAccount:${google_service_account.replica.email}"
}

# What Terraform knows and the replicas need: the configuration, which has no secret but is
# read in the same way, and how to get into Redis.
resource "google_secret_manager_secret" "made" {
  for_each = toset(["config", "redis"])

  project   = var.project_id
  secret_id = "${var.name}-${each.key}"
  labels    = local.labels

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }
}

resource "google_secret_manager_secret_version" "config" {
  secret      = google_secret_manager_secret.made["config"].id
  secret_data = var.config_yaml

  lifecycle {
    create_before_destroy = true # else there is none for a moment
  }
}

resource "google_secret_manager_secret_version" "redis" {
  secret = google_secret_manager_secret.made["redis"].id
  secret_data = jsonencode({
    redis_password = google_redis_instance.redis.auth_string
    redis_ca       = join("\n", google_redis_instance.redis.server_ca_certs[*].cert)
  })

  lifecycle {
    create_before_destroy = true
  }
}
