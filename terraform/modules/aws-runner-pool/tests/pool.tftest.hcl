# No account and no network: AWS is mocked. What is asserted here is what the apply
# would ask for.
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

# C27: nothing but Spillway may end an instance.
run "nobody_else_kills" {
  assert {
    condition     = aws_autoscaling_group.runners.protect_from_scale_in
    error_message = "new instances are not protected"
  }
  assert {
    condition     = contains(aws_autoscaling_group.runners.suspended_processes, "AZRebalance")
    error_message = "zones are balanced"
  }
  assert {
    condition     = !aws_autoscaling_group.runners.capacity_rebalance && aws_autoscaling_group.runners.max_instance_lifetime == 0
    error_message = "the group replaces instances by itself"
  }
  assert {
    condition     = aws_autoscaling_group.runners.health_check_type == "EC2" && length(aws_autoscaling_group.runners.instance_refresh) == 0
    error_message = "the group replaces instances by itself"
  }
  assert {
    condition     = { for t in aws_autoscaling_group.runners.tag : t.key => t.value }["spillway-owner"] == "spillway"
    error_message = "no owner: another control plane may take the group"
  }
}

# C31: the group's bounds are the pool's.
run "bounds" {
  variables {
    min_idle_runners = 3
  }
  assert {
    condition     = aws_autoscaling_group.runners.max_size == 20 && output.spillway_pool.policy.max == 20
    error_message = "two different maxima"
  }
  assert {
    condition     = aws_autoscaling_group.runners.min_size == 0 && output.spillway_pool.policy.idle_count == 3
    error_message = "idle instances are Spillway's, min size is 0"
  }
}

run "max_zero_is_refused" {
  command = plan
  variables {
    max_runners = 0
  }
  expect_failures = [var.max_runners]
}

run "more_idle_than_max_is_refused" {
  command = plan
  variables {
    min_idle_runners = 21
  }
  expect_failures = [var.min_idle_runners]
}

# C34: the hook holds for as long as the drain may take.
run "drain" {
  variables {
    drain_timeout_seconds     = 10800
    heartbeat_timeout_seconds = 300
  }
  assert {
    condition     = aws_autoscaling_lifecycle_hook.terminating.heartbeat_timeout == 300 && aws_autoscaling_lifecycle_hook.terminating.lifecycle_transition == "autoscaling:EC2_INSTANCE_TERMINATING"
    error_message = "no hook that waits for jobs"
  }
  assert {
    condition     = jsondecode(output.spillway_pool.provider.config).hooks.drain_timeout == "10800s" && output.spillway_pool.policy.drain_timeout == "10800s"
    error_message = "hook and pool disagree"
  }
}

run "drain_longer_than_aws_waits_is_refused" {
  command = plan
  variables {
    drain_timeout_seconds     = 10800
    heartbeat_timeout_seconds = 60
  }
  expect_failures = [var.drain_timeout_seconds]
}

run "launching_hook" {
  variables {
    wait_for_registration = true
  }
  assert {
    condition     = aws_autoscaling_lifecycle_hook.launching[0].default_result == "ABANDON"
    error_message = "an instance that does not register goes into service"
  }
}

# T14: no way in, no way to the instance's credentials from a container.
run "closed" {
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.metrics) == 0
    error_message = "something may connect to the runners"
  }
  assert {
    condition     = aws_launch_template.runner.metadata_options[0].http_tokens == "required" && aws_launch_template.runner.metadata_options[0].http_put_response_hop_limit == 1
    error_message = "containers can read the instance's credentials"
  }
  assert {
    condition     = aws_launch_template.runner.key_name == null || aws_launch_template.runner.key_name == ""
    error_message = "there is an SSH key"
  }
  assert {
    condition     = aws_launch_template.runner.block_device_mappings[0].ebs[0].encrypted == "true"
    error_message = "the disk is not encrypted"
  }
}

run "metrics_from_one_group" {
  variables {
    metrics_source_sg = "sg-0fedcba9876543210"
  }
  assert {
    condition     = aws_vpc_security_group_ingress_rule.metrics[0].from_port == 9252 && aws_vpc_security_group_ingress_rule.metrics[0].to_port == 9252 && aws_vpc_security_group_ingress_rule.metrics[0].referenced_security_group_id == "sg-0fedcba9876543210"
    error_message = "not the metrics' port, from that group"
  }
}

run "spot" {
  variables {
    spot           = { on_demand_base = 1, on_demand_percent = 0 }
    instance_types = ["m6i.large", "m5.large"]
  }
  assert {
    condition     = aws_autoscaling_group.runners.mixed_instances_policy[0].instances_distribution[0].on_demand_percentage_above_base_capacity == 0
    error_message = "not spot"
  }
  assert {
    condition     = alltrue([for o in aws_autoscaling_group.runners.mixed_instances_policy[0].launch_template[0].override : o.weighted_capacity == null || o.weighted_capacity == ""])
    error_message = "weights: Spillway counts instances"
  }
}

run "notices_of_a_second_pool" {
  variables {
    notices = { queue_name = "q", queue_arn = "arn:aws:sqs:eu-central-1:111122223333:q", queue_url = "https://sqs.eu-central-1.amazonaws.com/111122223333/q" }
  }
  assert {
    condition     = length(aws_sqs_queue.notices) == 0 && length(aws_cloudwatch_event_rule.notices) == 0 && jsondecode(output.spillway_pool.provider.config).notices_queue == "q"
    error_message = "a second queue for one control plane"
  }
}

run "observe_needs_gitlab" {
  command = plan
  variables {
    mode = "observe"
  }
  expect_failures = [var.gitlab]
}

run "a_secret_pattern_is_refused" {
  command = plan
  variables {
    tls_secret_arn = "arn:aws:secretsmanager:eu-central-1:111122223333:secret:*"
  }
  expect_failures = [var.tls_secret_arn]
}

run "a_download_without_tls_is_refused" {
  command = plan
  variables {
    agent = { url = "http://artifacts.example.com/spillway-agent", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
  }
  expect_failures = [var.agent]
}
