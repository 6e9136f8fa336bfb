locals {
  name   = "spillway-${var.pool_name}"
  owner  = { spillway-owner = var.owner }
  labels = merge(var.labels, local.owner, { spillway-pool = var.pool_name })
}

# The number of instances is Spillway's. There is no autoscaler, no health check that
# heals and no update that goes by itself: each would end instances with jobs on them.
resource "google_compute_region_instance_group_manager" "runners" {
  project            = var.project_id
  region             = var.region
  name               = local.name
  description        = "Runners of the Spillway pool ${var.pool_name}"
  base_instance_name = local.name

  distribution_policy_zones        = length(var.zones) > 0 ? var.zones : null
  distribution_policy_target_shape = "ANY" # where there is capacity; no zone is evened out
  list_managed_instances_results   = "PAGINATED"
  wait_for_instances               = false

  version {
    instance_template = google_compute_region_instance_template.runner.id
  }

  # New instances have the newest template; running ones keep theirs.
  update_policy {
    type                         = "OPPORTUNISTIC"
    minimal_action               = "REPLACE"
    instance_redistribution_type = "NONE"
  }

  # What Google has ended is made again, from the template that it had.
  instance_lifecycle_policy {
    default_action_on_failure = "REPAIR"
    force_update_on_repair    = "NO"
  }

  # Here the plugin sees the owner before there is an instance.
  all_instances_config {
    labels = local.owner
  }

  dynamic "instance_flexibility_policy" {
    for_each = length(var.machine_types) > 1 ? [var.machine_types] : []
    content {
      instance_selections {
        name          = "any"
        rank          = 1
        machine_types = instance_flexibility_policy.value
      }
    }
  }

  lifecycle {
    # There is no target_size here, and an apply must not reset what Spillway has asked for.
    ignore_changes = [target_size]
  }
}
