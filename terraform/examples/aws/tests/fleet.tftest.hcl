# No account and no network: AWS is mocked.
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
    defaults = { arn = "arn:aws:iam::111122223333:instance-profile/spillway" }
  }
  mock_resource "aws_autoscaling_group" {
    defaults = { arn = "arn:aws:autoscaling:eu-central-1:111122223333:autoScalingGroup:0:autoScalingGroupName/spillway-linux" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-central-1:111122223333:log-group:/spillway/control-plane/spillway" }
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
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:loadbalancer/net/spillway/0123456789abcdef", dns_name = "spillway.elb.eu-central-1.amazonaws.com" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-central-1:111122223333:targetgroup/spillway/0123456789abcdef" }
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
  mock_resource "aws_elasticache_replication_group" {
    defaults = { primary_endpoint_address = "master.spillway-redis.abcdef.euc1.cache.amazonaws.com" }
  }
}

variables {
  region           = "eu-central-1"
  vpc_id           = "vpc-0123456789abcdef0"
  subnet_ids       = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  zone_id          = "Z0123456789ABCDEFGHIJ"
  coordinator_name = "spillway.example.com"
  ami              = "ami-0123456789abcdef0"
  redis_auth_token = "not-a-real-token-of-anybody"
  secrets = {
    control_plane = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:spillway/control-plane-AbCdEf"
    spot          = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:spillway/linux-spot-AbCdEf"
    on_demand     = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:spillway/linux-AbCdEf"
  }
  binaries = {
    agent        = { url = "https://artifacts.example.com/spillway-agent", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
    controlplane = { url = "https://artifacts.example.com/controlplane", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
    plugin       = { url = "https://artifacts.example.com/spillway-provider-ec2asg", sha256 = "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752" }
  }
}

run "fleet" {
  assert {
    condition     = jsonencode(yamldecode(output.spillway_yaml).pools[*].name) == jsonencode(["linux-spot", "linux"])
    error_message = "a pool of Terraform is none of Spillway's"
  }
  assert {
    condition     = length(yamldecode(output.spillway_yaml).providers) == 1
    error_message = "one account and region is one provider"
  }
}
