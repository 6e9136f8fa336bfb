# The instances' account. Every job can use it, in a container too, as there is no hop
# limit on Google: it reads the pool's secret and writes logs, and has no right on the
# group, on other instances or on IAM.
resource "google_service_account" "runner" {
  project      = var.project_id
  account_id   = local.name
  display_name = "Runners of the Spillway pool ${var.pool_name}"
}

locals {
  role_prefix = replace(local.name, "-", "_") # a role's id has no -

  # By what they are for. Each is bound where it is needed and nowhere else.
  runner_permissions = {
    secret = ["secretmanager.versions.access"]
    logs   = ["logging.logEntries.create"]
  }
}

resource "google_project_iam_custom_role" "runner" {
  for_each = local.runner_permissions

  project     = var.project_id
  role_id     = "${local.role_prefix}_${each.key}"
  title       = "Spillway pool ${var.pool_name}: ${each.key}"
  permissions = each.value
}

# On the one secret, not on the project.
resource "google_secret_manager_secret_iam_member" "runner" {
  secret_id = var.tls_secret_id
  role      = google_project_iam_custom_role.runner["secret"].id
  member    = "serviceAccount:${google_service_account.runner.email}"
}

# Google knows no narrower place for logs than a project.
resource "google_project_iam_member" "logs" {
  project = var.project_id
  role    = google_project_iam_custom_role.runner["logs"].id
  member  = "serviceAccount:${google_service_account.runner.email}"
}
