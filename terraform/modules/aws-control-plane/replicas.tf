locals {
  settings = {
    REGION              = data.aws_region.current.name
    SECRET_ARN          = var.secret_arn
    CONFIG              = aws_ssm_parameter.config.name
    LOG_GROUP           = aws_cloudwatch_log_group.replicas.name
    CONTROLPLANE_URL    = var.controlplane.url
    CONTROLPLANE_SHA256 = var.controlplane.sha256
    PLUGIN_URL          = var.plugin.url
    PLUGIN_SHA256       = var.plugin.sha256
    REPLICA_DOMAIN      = local.replica_domain
  }

  user_data = join("\n", concat(
    ["#!/bin/bash", "# Boots a replica of the Spillway control plane ${var.name}."],
    [for name in sort(keys(local.settings)) : "${name}='${local.settings[name]}'"],
    [file("${path.module}/files/boot.sh")],
  ))
}

resource "aws_launch_template" "replica" {
  name                   = "${var.name}-control-plane"
  description            = "Replicas of the Spillway control plane ${var.name}"
  image_id               = var.ami
  instance_type          = var.instance_type
  update_default_version = true
  user_data              = base64encode(local.user_data)
  vpc_security_group_ids = [aws_security_group.replicas.id]

  iam_instance_profile {
    arn = aws_iam_instance_profile.replica.arn
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  dynamic "tag_specifications" {
    for_each = ["instance", "volume"]
    content {
      resource_type = tag_specifications.value
      tags          = merge(local.tags, { Name = "${var.name}-control-plane" })
    }
  }
}

# Two replicas, whatever happens: each pool has one owner among them, and the other one
# takes over. Their group has no owner tag that the plugin would know.
resource "aws_autoscaling_group" "replicas" {
  name                      = "${var.name}-control-plane"
  vpc_zone_identifier       = var.subnet_ids
  min_size                  = 2
  max_size                  = 3 # one more while one is replaced
  desired_capacity          = 2
  health_check_type         = "EC2" # a replica that is not ready, because Redis is away, is not to be replaced
  target_group_arns         = [for t in aws_lb_target_group.listeners : t.arn]
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.replica.id
    version = aws_launch_template.replica.latest_version
  }

  # A new version is taken up one replica after the other.
  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 150
    }
  }

  dynamic "tag" {
    for_each = local.tags
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }
}

resource "aws_security_group" "replicas" {
  name        = "${var.name}-control-plane"
  description = "Replicas of the Spillway control plane ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-control-plane" })
}

resource "aws_vpc_security_group_egress_rule" "out" {
  security_group_id = aws_security_group.replicas.id
  description       = "AWS, Redis, GitLab"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

resource "aws_vpc_security_group_ingress_rule" "from_balancer" {
  for_each = local.ports

  security_group_id            = aws_security_group.replicas.id
  description                  = "Load balancer: ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.balancer.id
}

# Sessions with running jobs (spillwayctl job exec), and jobs of GitLab whose runner asked
# another replica, go from one to another.
resource "aws_vpc_security_group_ingress_rule" "between_replicas" {
  for_each = { for name, port in local.ports : name => port if contains(["api", "job_router"], name) }

  security_group_id            = aws_security_group.replicas.id
  description                  = "Other replicas: ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.replicas.id
}
