locals {
  listeners = { for name, port in local.ports : name => port if name != "metrics" }
  gitlab    = { for name, port in var.gitlab_ports : name => port if port != null }
}

# TLS ends at the replicas, so that certificates of clients reach them.
resource "aws_lb" "internal" {
  name                             = var.name
  load_balancer_type               = "network"
  internal                         = true
  subnets                          = var.subnet_ids
  security_groups                  = [aws_security_group.balancer.id]
  enable_cross_zone_load_balancing = true
  tags                             = local.tags
}

resource "aws_lb_target_group" "listeners" {
  for_each = local.listeners

  name                   = "${var.name}-${trimprefix(each.key, "job_")}"
  port                   = each.value
  protocol               = "TCP"
  vpc_id                 = var.vpc_id
  preserve_client_ip     = "false" # else an instance that is runner and target at once can't connect
  deregistration_delay   = 60
  connection_termination = true
  tags                   = local.tags

  health_check {
    protocol            = "HTTPS"
    port                = "7702"
    path                = "/readyz"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "listeners" {
  for_each = local.listeners

  load_balancer_arn = aws_lb.internal.arn
  port              = each.value
  protocol          = "TCP"
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.listeners[each.key].arn
  }
}

resource "aws_security_group" "balancer" {
  name        = "${var.name}-balancer"
  description = "Load balancer of the Spillway control plane ${var.name}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = "${var.name}-balancer" })
}

resource "aws_vpc_security_group_egress_rule" "to_replicas" {
  for_each = local.ports

  security_group_id            = aws_security_group.balancer.id
  description                  = "Replicas: ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  referenced_security_group_id = aws_security_group.replicas.id
}

resource "aws_vpc_security_group_ingress_rule" "runners" {
  for_each = var.runner_security_group_ids

  security_group_id            = aws_security_group.balancer.id
  description                  = "Runners: ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = 7700
  to_port                      = 7700
  referenced_security_group_id = each.value
}

# Runners in mode route ask here for jobs, and go through to GitLab if we are its front.
resource "aws_vpc_security_group_ingress_rule" "gitlab_runners" {
  for_each = { for at in setproduct(keys(local.gitlab), keys(var.runner_security_group_ids)) : "${at[0]}-${at[1]}" => { port = local.gitlab[at[0]], from = var.runner_security_group_ids[at[1]] } }

  security_group_id            = aws_security_group.balancer.id
  description                  = "Runners: ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
  referenced_security_group_id = each.value.from
}

resource "aws_vpc_security_group_ingress_rule" "webhooks" {
  for_each = toset(var.gitlab_cidrs)

  security_group_id = aws_security_group.balancer.id
  description       = "GitLab: webhooks"
  ip_protocol       = "tcp"
  from_port         = var.gitlab_ports.gitlab
  to_port           = var.gitlab_ports.gitlab
  cidr_ipv4         = each.value
}

resource "aws_vpc_security_group_ingress_rule" "api" {
  for_each = toset(var.api_cidrs)

  security_group_id = aws_security_group.balancer.id
  description       = "API"
  ip_protocol       = "tcp"
  from_port         = 7701
  to_port           = 7701
  cidr_ipv4         = each.value
}
