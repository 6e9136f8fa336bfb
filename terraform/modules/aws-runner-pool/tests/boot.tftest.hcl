# No account and no network: AWS is mocked. What these runs make is read by the
# Go tests: user data of each mode, and policies.
mock_provider "aws" {
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 1 }
  }
  mock_resource "aws_security_group" {
    defaults = { id = "sg-0123456789abcdef0" }
  }
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::111122223333:role/spillway-linux" }
  }
  mock_resource "aws_iam_instance_profile" {
    defaults = { arn = "arn:aws:iam::111122223333:instance-profile/spillway-linux" }
  }
  mock_resource "aws_autoscaling_group" {
    defaults = { arn = "arn:aws:autoscaling:eu-central-1:111122223333:autoScalingGroup:0:autoScalingGroupName/spillway-linux" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:111122223333:log-group:/spillway/linux" }
  }
  mock_resource "aws_sqs_queue" {
    defaults = {
      arn = "arn:aws:sqs:eu-central-1:111122223333:spillway-linux-notices"
      url = "https://sqs.eu-central-1.amazonaws.com/111122223333/spillway-linux-notices"
    }
  }
  mock_resource "aws_cloudwatch_event_rule" {
    defaults = { arn = "arn:aws:events:eu-central-1:111122223333:rule/spillway-linux" }
  }
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
}

variables {
  pool_name        = "linux"
  max_runners      = 20
  runner_ami       = "ami-0123456789abcdef0"
  coordinator_addr = "spillway.internal:7700"
  tls_secret_arn   = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:spillway/linux-AbCdEf"
  vpc_id           = "vpc-0123456789abcdef0"
  subnet_ids       = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  capability       = { tags = ["linux"] }
  agent = {
    url    = "https://artifacts.example.com/spillway-agent"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  }
}

run "orchestrate" {
  variables {
    jobs_per_instance = 2
  }
  assert {
    condition     = output.spillway_pool.drain == null
    error_message = "an agent that runs the jobs needs no other proof"
  }
}

run "observe" {
  variables {
    mode                   = "observe"
    metrics_source_sg      = "sg-0fedcba9876543210"
    tls_secret_kms_key_arn = "arn:aws:kms:eu-central-1:111122223333:key/12345678-1234-1234-1234-123456789012"
    gitlab = {
      url           = "https://gitlab.example.com"
      runner_url    = "https://artifacts.example.com/gitlab-runner"
      runner_sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
      executor      = "docker"
    }
  }
  assert {
    condition     = output.spillway_pool.drain == "sidecar"
    error_message = "nothing stops the runners"
  }
}

run "route" {
  variables {
    mode  = "route"
    agent = null
    gitlab = {
      url           = "https://gitlab.example.com"
      runner_url    = "https://artifacts.example.com/gitlab-runner"
      runner_sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
    }
  }
  assert {
    condition     = output.spillway_pool.drain == null
    error_message = "Spillway hands the jobs out itself"
  }
}
