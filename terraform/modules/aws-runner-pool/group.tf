data "aws_region" "current" {}

locals {
  name = "spillway-${var.pool_name}"
  tags = merge(var.tags, { spillway-owner = var.owner, spillway-pool = var.pool_name })
}

# The number of instances is Spillway's. There is no scaling policy, no schedule and
# no instance refresh: each would end instances with jobs on them.
resource "aws_autoscaling_group" "runners" {
  name                = local.name
  vpc_zone_identifier = var.subnet_ids
  min_size            = 0
  max_size            = var.max_runners

  protect_from_scale_in     = true
  suspended_processes       = ["AZRebalance"]
  capacity_rebalance        = false # Spillway drains on the same notice
  health_check_type         = "EC2"
  max_instance_lifetime     = 0
  wait_for_capacity_timeout = "0"

  mixed_instances_policy {
    instances_distribution {
      on_demand_base_capacity                  = var.spot.on_demand_base
      on_demand_percentage_above_base_capacity = var.spot.on_demand_percent
      spot_allocation_strategy                 = var.spot.allocation_strategy
    }

    launch_template {
      launch_template_specification {
        launch_template_id = aws_launch_template.runner.id
        version            = aws_launch_template.runner.latest_version
      }

      dynamic "override" {
        for_each = var.instance_types
        content {
          instance_type = override.value
        }
      }
    }
  }

  # On the group, where the plugin and the policy of the control plane look for the owner.
  # Instances and volumes get theirs from the launch template.
  dynamic "tag" {
    for_each = local.tags
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }

  lifecycle {
    # An apply must not reset what Spillway has asked for. min_size and max_size stay ours.
    ignore_changes = [desired_capacity]
  }
}

# What AWS ends waits here until its jobs have ended: the control plane keeps it alive
# and completes it. If nobody does, the instance goes.
resource "aws_autoscaling_lifecycle_hook" "terminating" {
  name                   = "spillway-drain"
  autoscaling_group_name = aws_autoscaling_group.runners.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = var.heartbeat_timeout_seconds
  default_result         = "CONTINUE"
}

resource "aws_autoscaling_lifecycle_hook" "launching" {
  count = var.wait_for_registration ? 1 : 0

  name                   = "spillway-register"
  autoscaling_group_name = aws_autoscaling_group.runners.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_LAUNCHING"
  heartbeat_timeout      = var.heartbeat_timeout_seconds
  default_result         = "ABANDON"
}
