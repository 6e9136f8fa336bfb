output "runner_asg_name" {
  description = "Name of the Auto Scaling group: the pool's `group`."
  value       = aws_autoscaling_group.runners.name
}

output "runner_asg_arn" {
  description = "Its ARN."
  value       = aws_autoscaling_group.runners.arn
}

output "runner_sg_id" {
  description = "Security group of the instances: what the control plane's listeners let in."
  value       = aws_security_group.runners.id
}

output "runner_role_arn" {
  description = "Role of the instances. Give it nothing more: jobs can use it."
  value       = aws_iam_role.runner.arn
}

output "launch_template_id" {
  description = "Launch template. New instances use its newest version; running ones are replaced as they idle, or with `policy.max_age`."
  value       = aws_launch_template.runner.id
}

output "log_group_name" {
  description = "Log group of the instances."
  value       = aws_cloudwatch_log_group.runners.name
}

output "notices" {
  description = "The queue of notices, for `notices` of further pools and `notices_queue_arns` of the control plane."
  value       = local.notices
}

output "user_data" {
  description = "What an instance runs at its first boot."
  value       = local.user_data
}

output "spillway_pool" {
  description = "The pool as the module spillway-config takes it."
  value = {
    name                  = var.pool_name
    mode                  = var.mode
    group                 = aws_autoscaling_group.runners.name
    priority              = var.priority
    capacity_per_instance = var.jobs_per_instance
    capability            = var.capability
    agent                 = var.agent != null
    drain                 = var.mode == "observe" ? "sidecar" : null
    metrics_port          = var.metrics_source_sg != null && var.mode != "orchestrate" ? 9252 : null
    policy = {
      max           = var.max_runners
      idle_count    = var.min_idle_runners
      drain_timeout = "${var.drain_timeout_seconds}s"
    }
    provider = {
      name   = "aws-${data.aws_region.current.name}"
      plugin = "spillway-provider-ec2asg"
      config = jsonencode({
        region        = data.aws_region.current.name
        owner         = var.owner
        notices_queue = local.notices.queue_name
        hooks         = { drain_timeout = "${var.drain_timeout_seconds}s", heartbeat_timeout = "${var.heartbeat_timeout_seconds}s" }
      })
    }
  }
}
