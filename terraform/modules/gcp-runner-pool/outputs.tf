output "runner_mig_name" {
  description = "Name of the managed instance group: the pool's `group`."
  value       = google_compute_region_instance_group_manager.runners.name
}

output "runner_mig_id" {
  description = "Its id, projects/PROJECT/regions/REGION/instanceGroupManagers/NAME."
  value       = google_compute_region_instance_group_manager.runners.id
}

output "runner_service_account" {
  description = "Email of the instances' account: what the control plane's listeners let in. Give it nothing more: jobs can use it."
  value       = google_service_account.runner.email
}

output "instance_template_id" {
  description = "Instance template. New instances use it; running ones are replaced as they idle, or with `policy.max_age`."
  value       = google_compute_region_instance_template.runner.id
}

output "startup_script" {
  description = "What an instance runs at each boot."
  value       = local.startup_script
}

output "spillway_pool" {
  description = "The pool as the module spillway-config takes it."
  value = {
    name                  = var.pool_name
    mode                  = var.mode
    group                 = google_compute_region_instance_group_manager.runners.name
    priority              = var.priority
    capacity_per_instance = var.jobs_per_instance
    capability            = var.capability
    agent                 = var.agent != null
    drain                 = var.mode == "observe" ? "sidecar" : null
    metrics_port          = local.metrics && var.mode != "orchestrate" ? 9252 : null
    policy = {
      max           = var.max_runners
      idle_count    = var.min_idle_runners
      drain_timeout = "${var.drain_timeout_seconds}s"
    }
    provider = {
      name   = "gce-${var.region}"
      plugin = "spillway-provider-gcemig"
      config = jsonencode({
        project = var.project_id
        region  = var.region
        owner   = var.owner
      })
    }
  }
}
