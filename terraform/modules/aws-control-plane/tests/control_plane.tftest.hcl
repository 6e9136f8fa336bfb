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
  config_yaml               = <<-EOT
    listen:
      runners: 0.0.0.0:7700
      api: 0.0.0.0:7701
      metrics: 0.0.0.0:7702
      tls: {cert_file: /run/spillway/cert, key_file: /run/spillway/key}
    access:
      - {name: ci, token: {file: /run/spillway/api-token}, roles: [push, read]}
    plugin_dir: /usr/lib/spillway/plugins
    providers:
      aws: {plugin: spillway-provider-ec2asg, config: {region: eu-central-1, groups: [spillway-linux], owner: spillway}}
    pools:
      - {name: linux, capability: {tags: [linux]}, provider: aws, group: spillway-linux, runner_token: {file: /run/spillway/tokens/linux}}
  EOT
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
  assert {
    condition     = join(" ", keys(aws_lb_target_group.listeners)) == "api runners" && length(aws_vpc_security_group_ingress_rule.gitlab_runners) == 0
    error_message = "a listener that nobody has asked for"
  }
  assert {
    condition     = !strcontains(aws_ssm_parameter.config.value, "@REPLICA@")
    error_message = "nobody may reach into jobs, and no job is routed: replicas have nothing to ask each other"
  }
}

# Sessions with jobs, and jobs of GitLab, go from one replica to another.
run "replicas_reach_each_other" {
  variables {
    gitlab_ports = { gitlab = 7703, job_router = 7704 }
    gitlab_cidrs = ["10.1.0.0/16"]
    config_yaml  = <<-EOT
      listen:
        runners: 0.0.0.0:7700
        api: 0.0.0.0:7701
        metrics: 0.0.0.0:7702
        gitlab: 0.0.0.0:7703
        job_router: 0.0.0.0:7704
        tls: {cert_file: /run/spillway/cert, key_file: /run/spillway/key}
      store:
        redis: {addrs: ["redis.internal:6379"], password_file: /run/spillway/redis_password, tls: {}}
      access:
        - {name: on-call, token: {file: /run/spillway/on-call}, roles: [read, debug]}
      debug: {max_sessions: 8}
      gitlab:
        url: https://gitlab.example.com
        route: {server_url: "grpcs://spillway.example.com:7704", front: true}
      plugin_dir: /usr/lib/spillway/plugins
      providers:
        aws: {plugin: spillway-provider-ec2asg, config: {region: eu-central-1, groups: [spillway-gitlab], owner: spillway}}
      pools:
        - name: gitlab
          mode: route
          capability: {tags: [docker]}
          provider: aws
          group: spillway-gitlab
          runner_token: {file: /run/spillway/tokens/gitlab}
          gitlab: {token: {file: /run/spillway/tokens/gitlab.gitlab}}
    EOT
  }
  assert {
    condition     = yamldecode(aws_ssm_parameter.config.value).debug == { advertise = "@REPLICA@:7701", max_sessions = 8 }
    error_message = "sessions with jobs of another replica's machines would be refused"
  }
  assert {
    condition     = yamldecode(aws_ssm_parameter.config.value).gitlab.route.advertise == "@REPLICA@:7704" && yamldecode(aws_ssm_parameter.config.value).gitlab.route.front
    error_message = "a runner that asks another replica for its job would not get it"
  }
  assert {
    condition     = { for name, rule in aws_vpc_security_group_ingress_rule.between_replicas : name => rule.from_port } == { api = 7701, job_router = 7704 }
    error_message = "replicas can't connect to each other"
  }
  assert {
    condition     = join(" ", keys(aws_lb_listener.listeners)) == "api gitlab job_router runners" && join(" ", keys(aws_vpc_security_group_ingress_rule.gitlab_runners)) == "gitlab-linux job_router-linux"
    error_message = "runners can't ask for jobs of GitLab"
  }
  assert {
    condition     = output.replica_names == "*.eu-central-1.compute.internal"
    error_message = "not how AWS names instances"
  }
}

run "own_key_and_no_queue" {
  variables {
    owner              = "ci"
    group_names        = ["ci-linux"]
    notices_queue_arns = []
    secret_kms_key_arn = "arn:aws:kms:eu-central-1:111122223333:key/a"
  }
  assert {
    condition     = length(jsondecode(aws_iam_role_policy.scale.policy).Statement) == 2
    error_message = "a right to a queue that is not there"
  }
}

run "what_the_owner_says_of_advertise_stays" {
  command = plan
  variables {
    config_yaml = <<-EOT
      listen: {runners: "0.0.0.0:7700", api: "0.0.0.0:7701", metrics: "0.0.0.0:7702", debug: "0.0.0.0:7705"}
      debug: {advertise: "a.example.com:7701"}
    EOT
  }
  assert {
    condition     = yamldecode(aws_ssm_parameter.config.value).debug.advertise == "a.example.com:7701"
    error_message = "overwritten"
  }
}

run "ports_that_nobody_looks_at_are_refused" {
  command = plan
  variables {
    config_yaml = <<-EOT
      listen: {runners: "0.0.0.0:7800", api: "0.0.0.0:7701", metrics: "0.0.0.0:7702"}
    EOT
  }
  expect_failures = [aws_ssm_parameter.config]
}

run "mode_route_needs_its_ports" {
  command = plan
  variables {
    config_yaml = <<-EOT
      listen: {runners: "0.0.0.0:7700", api: "0.0.0.0:7701", metrics: "0.0.0.0:7702"}
      gitlab: {url: "https://gitlab.example.com", route: {server_url: "grpcs://spillway.example.com:7704"}}
    EOT
  }
  expect_failures = [aws_ssm_parameter.config]
}

run "a_configuration_that_is_too_long_is_refused" {
  command = plan
  variables {
    config_yaml = "listen: {runners: 'a:7700', api: 'a:7701', metrics: 'a:7702', gitlab: '${join("", [for i in range(820) : "0123456789"])}'}"
  }
  expect_failures = [aws_ssm_parameter.config]
}

run "webhooks_need_a_listener" {
  command = plan
  variables {
    gitlab_cidrs = ["10.1.0.0/16"]
  }
  expect_failures = [var.gitlab_cidrs]
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
