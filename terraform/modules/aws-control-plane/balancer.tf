locals {
  listeners = { runners = 7700, api = 7701 }
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

  name                   = "${var.name}-${each.key}"
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
  security_group_id            = aws_security_group.balancer.id
  description                  = "Replicas"
  ip_protocol                  = "tcp"
  from_port                    = 7700
  to_port                      = 7702
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

resource "aws_vpc_security_group_ingress_rule" "api" {
  for_each = toset(var.api_cidrs)

  security_group_id = aws_security_group.balancer.id
  description       = "API"
  ip_protocol       = "tcp"
  from_port         = 7701
  to_port           = 7701
  cidr_ipv4         = each.value
}
