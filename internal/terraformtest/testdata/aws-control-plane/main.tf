# The control plane on an emulator of AWS, with a pool of GitLab's jobs and somebody who
# may reach into jobs: the most that its configuration can have.
terraform {
  required_providers {
    aws = {
      source = "hashicorp/aws"
    }
  }
}

provider "aws" {
  region                      = "us-east-1"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
}


data "aws_vpc" "default" {
  default = true
}

data "aws_subnets" "default" {
  filter {
    name   = "vpc-id"
    values = [data.aws_vpc.default.id]
  }
}

resource "aws_secretsmanager_secret" "control_plane" {
  name                    = "spillway/control-plane"
  recovery_window_in_days = 0
}

resource "aws_secretsmanager_secret_version" "control_plane" {
  secret_id = aws_secretsmanager_secret.control_plane.id
  secret_string = jsonencode({
    cert           = "CERT"
    key            = "KEY"
    redis_password = "not-a-real-token-of-anybody"
    tokens         = { gitlab = "a-token-of-a-test", "gitlab.gitlab" = "glrt-of-a-test" }
    files          = { on-call = "another-token-of-a-test" }
  })
}

resource "aws_security_group" "runners" {
  name   = "runners"
  vpc_id = data.aws_vpc.default.id
}

module "config" {
  source = "../modules/spillway-config"

  pools = [{
    name                  = "gitlab"
    mode                  = "route"
    group                 = "spillway-gitlab"
    priority              = 0
    capacity_per_instance = 1
    capability            = { tags = ["docker"], run_untagged = false, protected = false }
    policy                = { max = 5, idle_count = 0, drain_timeout = "3600s" }
    provider              = { name = "aws", plugin = "spillway-provider-ec2asg", config = jsonencode({ region = "us-east-1", owner = "spillway" }) }
  }]
  redis = { addrs = [module.control_plane.redis_addr], password_file = "/run/spillway/redis_password", tls = {} }

  listen = {
    runners    = "0.0.0.0:7700"
    api        = "0.0.0.0:7701"
    metrics    = "0.0.0.0:7702"
    gitlab     = "0.0.0.0:7703"
    job_router = "0.0.0.0:7704"
    tls        = { cert_file = "/run/spillway/cert", key_file = "/run/spillway/key" }
  }

  settings = {
    access = [{ name = "on-call", token = { file = "/run/spillway/on-call" }, roles = ["read", "debug"] }]
    gitlab = { url = "https://gitlab.example.com", route = { server_url = "grpcs://spillway.example.com:7704", front = true } }
  }
}

module "control_plane" {
  source = "../modules/aws-control-plane"

  group_names               = ["spillway-gitlab"]
  notices_queue_arns        = ["arn:aws:sqs:us-east-1:123456789012:spillway-gitlab-notices"]
  config_yaml               = module.config.yaml
  gitlab_ports              = { gitlab = 7703, job_router = 7704 }
  gitlab_cidrs              = ["10.1.0.0/16"]
  api_cidrs                 = ["10.0.0.0/16"]
  secret_arn                = aws_secretsmanager_secret.control_plane.arn
  redis_auth_token          = "not-a-real-token-of-anybody"
  ami                       = "ami-12c6146b"
  vpc_id                    = data.aws_vpc.default.id
  subnet_ids                = data.aws_subnets.default.ids
  runner_security_group_ids = { gitlab = aws_security_group.runners.id }

  # SHA-256 of what the test has at these places.
  controlplane = {
    url    = "https://artifacts.example.com/controlplane"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  }
  plugin = {
    url    = "https://artifacts.example.com/spillway-provider-ec2asg"
    sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
  }
}

output "user_data" {
  value = module.control_plane.user_data
}
