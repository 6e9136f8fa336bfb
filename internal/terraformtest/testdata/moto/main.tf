# The pool on an emulator of AWS: what a person would write, in the smallest way.
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

variable "endpoint" {
  type = string
}

variable "token_dir" {
  type = string
}

variable "redis" {
  type = string
}

variable "plugin_dir" {
  type = string
}

variable "plugin_sha256" {
  type = string
}

variable "max_runners" {
  type    = number
  default = 5
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

resource "aws_secretsmanager_secret" "linux" {
  name = "spillway/linux"
}

module "linux" {
  source = "../modules/aws-runner-pool"

  pool_name        = "linux"
  max_runners      = var.max_runners
  runner_ami       = "ami-12c6146b"
  coordinator_addr = "spillway.internal:7700"
  tls_secret_arn   = aws_secretsmanager_secret.linux.arn
  vpc_id           = data.aws_vpc.default.id
  subnet_ids       = data.aws_subnets.default.ids
  capability       = { tags = ["linux"] }
  agent = {
    url    = "https://artifacts.example.com/spillway-agent"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  }
}

module "config" {
  source = "../modules/spillway-config"

  pools             = [module.linux.spillway_pool]
  policies          = { linux = { idle_time = "1s" } }
  provider_settings = { aws-us-east-1 = { endpoint = var.endpoint } }
  plugin_dir        = var.plugin_dir
  plugin_sha256     = { spillway-provider-ec2asg = var.plugin_sha256 }
  token_dir         = var.token_dir
  listen            = { runners = "127.0.0.1:0", api = "127.0.0.1:0", metrics = "127.0.0.1:0" }
  redis             = { addrs = [var.redis] }
  settings          = { tick = "500ms" }
}

output "yaml" {
  value = module.config.yaml
}

output "group" {
  value = module.linux.runner_asg_name
}
