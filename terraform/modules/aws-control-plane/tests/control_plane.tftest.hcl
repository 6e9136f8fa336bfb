# No account and no network: AWS is mocked.
mock_provider "aws" {
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 1 }
  }
  mock_resource "aws_security_group" {
    defaults = { id = "sg-0123456789abcdef0" }
  }
  mock_resource "aws_iam_instance_profile" {
    defaults = { arn = "arn:aws:iam::111122223333:instance-profile/spillway" }
  }
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:loadbalancer/net/spillway/0123456789abcdef", dns_name = "spillway.elb.eu-central-1.amazonaws.com" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/spillway/0123456789abcdef" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:111122223333:log-group:/spillway/control-plane/spillway" }
  }
  mock_resource "aws_ssm_parameter" {
    defaults = { arn = "arn:aws:ssm:eu-central-1:111122223333:parameter/spillway/spillway/spillway.yaml" }
  }
  mock_data "aws_region" {
    defaults = { name = "eu-central-1" }
  }
  mock_data "aws_caller_identity" {
    defaults = { account_id = "111122223333" }
  }
  mock_data "aws_partition" {
    defaults = { partition = "aws" }
  }
}

variables {
  group_names               = ["spillway-linux", "spillway-gitlab"]
  notices_queue_arns        = ["arn:aws:sqs:eu-central-1:111122223333:spillway-linux-notices"]
  config_yaml               = "pools: []\n"
  secret_arn                = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:spillway/control-plane-AbCdEf"
  redis_auth_token          = "not-a-real-token-of-anybody"
  ami                       = "ami-0123456789abcdef0"
  vpc_id                    = "vpc-0123456789abcdef0"
  subnet_ids                = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  runner_security_group_ids = { linux = "sg-0123456789abcdef1" }
  controlplane = {
    url    = "https://artifacts.example.com/controlplane"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  }
  plugin = {
    url    = "https://artifacts.example.com/spillway-provider-ec2asg"
    sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"
  }
}

run "control_plane" {
  assert {
    condition     = aws_autoscaling_group.replicas.desired_capacity == 2 && aws_autoscaling_group.replicas.min_size == 2
    error_message = "not two replicas"
  }
  assert {
    condition     = aws_elasticache_replication_group.redis.transit_encryption_enabled && aws_elasticache_replication_group.redis.at_rest_encryption_enabled && aws_elasticache_replication_group.redis.automatic_failover_enabled
    error_message = "Redis without TLS, or without a second node"
  }
  assert {
    condition     = { for p in aws_elasticache_parameter_group.redis.parameter : p.name => p.value }["maxmemory-policy"] == "noeviction"
    error_message = "a full Redis would drop jobs"
  }
  assert {
    condition     = aws_launch_template.replica.metadata_options[0].http_tokens == "required" && aws_launch_template.replica.metadata_options[0].http_put_response_hop_limit == 1
    error_message = "IMDSv2 is not required"
  }
  assert {
    condition     = aws_lb.internal.internal && length(aws_vpc_security_group_ingress_rule.api) == 0
    error_message = "reachable by somebody who was not named"
  }
}

run "a_pattern_for_groups_is_refused" {
  command = plan
  variables {
    group_names = ["*"]
  }
  expect_failures = [var.group_names]
}

run "one_subnet_is_refused" {
  command = plan
  variables {
    subnet_ids = ["subnet-0123456789abcdef0"]
  }
  expect_failures = [var.subnet_ids]
}
