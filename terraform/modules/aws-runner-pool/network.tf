# Nothing connects to a runner: agents and gitlab-runner connect to the outside. No SSH.
resource "aws_security_group" "runners" {
  name        = local.name
  description = "Runners of the Spillway pool ${var.pool_name}"
  vpc_id      = var.vpc_id
  tags        = merge(local.tags, { Name = local.name })
}

resource "aws_vpc_security_group_egress_rule" "out" {
  for_each = toset(var.egress_cidrs)

  security_group_id = aws_security_group.runners.id
  description       = "Control plane, GitLab, AWS, and what jobs need"
  ip_protocol       = "-1"
  cidr_ipv4         = each.value
}

# Only with metrics_source_sg. count must be known before anything is made, and the id
# of a group made in the same apply is not; that there is one, is.
resource "aws_vpc_security_group_ingress_rule" "metrics" {
  count = var.metrics_source_sg == null ? 0 : 1

  security_group_id            = aws_security_group.runners.id
  description                  = "Metrics of gitlab-runner"
  ip_protocol                  = "tcp"
  from_port                    = 9252
  to_port                      = 9252
  referenced_security_group_id = var.metrics_source_sg
}
