# A whole fleet in a network that is there: a control plane, a pool of spot instances, and
# one on demand for what spot has no capacity for.
terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.60, < 6.0"
    }
  }
}

provider "aws" {
  region = var.region
}

locals {
  owner   = "ci-production"
  machine = { spot = { on_demand_percent = 0 }, on-demand = { on_demand_percent = 100 } }
}

module "spot" {
  source = "../../modules/aws-runner-pool"

  pool_name        = "linux-spot"
  owner            = local.owner
  min_idle_runners = 1
  max_runners      = 20
  runner_ami       = var.ami
  coordinator_addr = "${var.coordinator_name}:7700"
  tls_secret_arn   = var.secrets.spot
  vpc_id           = var.vpc_id
  subnet_ids       = var.subnet_ids
  spot             = local.machine.spot
  capability       = { tags = ["linux"] }
  agent            = var.binaries.agent
}

module "on_demand" {
  source = "../../modules/aws-runner-pool"

  pool_name        = "linux"
  owner            = local.owner
  max_runners      = 5
  priority         = 1
  runner_ami       = var.ami
  coordinator_addr = "${var.coordinator_name}:7700"
  tls_secret_arn   = var.secrets.on_demand
  vpc_id           = var.vpc_id
  subnet_ids       = var.subnet_ids
  spot             = local.machine.on-demand
  capability       = { tags = ["linux"] }
  agent            = var.binaries.agent
  notices          = module.spot.notices # one control plane, one queue
}

module "config" {
  source = "../../modules/spillway-config"

  pools         = [module.spot.spillway_pool, module.on_demand.spillway_pool]
  policies      = { linux-spot = { idle_time = "15m" } }
  plugin_sha256 = { spillway-provider-ec2asg = var.binaries.plugin.sha256 }

  listen = {
    runners = "0.0.0.0:7700"
    api     = "0.0.0.0:7701"
    metrics = "0.0.0.0:7702"
    tls     = { cert_file = "/run/spillway/cert", key_file = "/run/spillway/key" }
  }

  redis = {
    addrs         = [module.control_plane.redis_addr]
    password_file = "/run/spillway/redis_password"
    tls           = {}
  }

  settings = {
    access = [{ name = "ci", token = { file = "/run/spillway/api-token" }, roles = ["push", "read", "operate"] }]
  }
}

module "control_plane" {
  source = "../../modules/aws-control-plane"

  owner              = local.owner
  group_names        = [module.spot.runner_asg_name, module.on_demand.runner_asg_name]
  notices_queue_arns = [module.spot.notices.queue_arn]
  config_yaml        = module.config.yaml
  secret_arn         = var.secrets.control_plane
  redis_auth_token   = var.redis_auth_token
  controlplane       = var.binaries.controlplane
  plugin             = var.binaries.plugin
  ami                = var.ami
  vpc_id             = var.vpc_id
  subnet_ids         = var.subnet_ids
  api_cidrs          = var.api_cidrs

  runner_security_group_ids = { spot = module.spot.runner_sg_id, on_demand = module.on_demand.runner_sg_id }
}

# The name that runners dial, and that the certificate of the control plane is for.
resource "aws_route53_record" "coordinator" {
  zone_id = var.zone_id
  name    = var.coordinator_name
  type    = "A"

  alias {
    name                   = module.control_plane.coordinator_host
    zone_id                = module.control_plane.coordinator_zone_id
    evaluate_target_health = false
  }
}
