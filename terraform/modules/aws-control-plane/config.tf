locals {
  given = yamldecode(var.config_yaml)

  # Replicas reach each other by name: for sessions with jobs of each other's machines, and
  # for runners that ask the wrong one for their job. Only an instance knows its own name,
  # and puts it in place of @REPLICA@ when it reads the configuration.
  sessions = try(local.given.listen.debug, null) != null || anytrue([for a in try(local.given.access, []) : contains(try(a.roles, []), "debug")])
  config = join("", [
    "# Made by Terraform: change it there.\n",
    yamlencode(merge(
      local.given,
      { for debug in [try(local.given.debug, {})] : "debug" => merge({ advertise = "@REPLICA@:7701" }, debug) if local.sessions },
      { for gitlab in try([local.given.gitlab], []) : "gitlab" => merge(gitlab,
        { for route in try([gitlab.route], []) : "route" => merge({ advertise = "@REPLICA@:${lookup(local.ports, "job_router", 0)}" }, route) },
      ) },
    )),
  ])

  ports = merge(
    { runners = 7700, api = 7701, metrics = 7702 },
    { for name, port in var.gitlab_ports : name => port if port != null },
  )

  # Every instance has such a name for its private address, whatever its own is:
  # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-naming.html
  replica_domain = data.aws_region.current.name == "us-east-1" ? "ec2.internal" : "${data.aws_region.current.name}.compute.internal"
}

resource "aws_ssm_parameter" "config" {
  name  = "/spillway/${var.name}/spillway.yaml"
  type  = "String"
  tier  = "Advanced" # 8 KiB
  value = local.config
  tags  = local.tags

  lifecycle {
    # Where the load balancer, and replicas each other, look for them.
    precondition {
      condition     = alltrue([for name, port in local.ports : endswith(try(local.given.listen[name], ""), ":${port}")])
      error_message = "The configuration must listen on these ports: ${jsonencode(local.ports)}."
    }

    precondition {
      condition     = !can(local.given.gitlab.route.server_url) || var.gitlab_ports.job_router != null
      error_message = "The configuration has pools in mode route: set gitlab_ports.job_router."
    }

    precondition {
      condition     = length(local.config) <= 8192
      error_message = "The configuration has ${length(local.config)} characters, and a parameter of the advanced tier holds 8192."
    }
  }
}
