locals {
  gitlab = var.gitlab == null ? {} : {
    GITLAB_URL       = var.gitlab.url
    RUNNER_URL       = var.gitlab.runner_url
    RUNNER_SHA256    = var.gitlab.runner_sha256
    EXECUTOR         = var.gitlab.executor
    DOCKER_IMAGE     = var.gitlab.docker_image
    METRICS_LISTENER = var.metrics_source_sg == null ? "127.0.0.1:9252" : ":9252"
  }

  agent = var.agent == null ? {} : {
    AGENT_URL    = var.agent.url
    AGENT_SHA256 = var.agent.sha256
  }

  # What boot.sh begins with. Everybody on the instance can read it: no secret is in it.
  settings = merge(local.gitlab, local.agent, {
    MODE          = var.mode
    POOL          = var.pool_name
    ROUTER        = var.coordinator_addr
    CAPACITY      = tostring(var.jobs_per_instance)
    REGION        = data.aws_region.current.name
    SECRET_ARN    = var.tls_secret_arn
    LOG_GROUP     = aws_cloudwatch_log_group.runners.name
    DRAIN_SECONDS = tostring(var.drain_timeout_seconds)
  })

  user_data = join("\n", concat(
    ["#!/bin/bash", "# Boots a runner of the Spillway pool ${var.pool_name}."],
    [for name in sort(keys(local.settings)) : "${name}='${local.settings[name]}'"],
    [file("${path.module}/files/boot.sh")],
  ))
}

resource "aws_launch_template" "runner" {
  name                   = local.name
  description            = "Runners of the Spillway pool ${var.pool_name}"
  image_id               = var.runner_ami
  instance_type          = var.instance_types[0]
  update_default_version = true
  user_data              = base64encode(local.user_data)

  vpc_security_group_ids = concat([aws_security_group.runners.id], var.extra_security_group_ids)

  iam_instance_profile {
    arn = aws_iam_instance_profile.runner.arn
  }

  # A job in a container is one hop further away than its host, and must not read the
  # instance's credentials.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "disabled"
  }

  block_device_mappings {
    device_name = var.root_volume.device

    ebs {
      volume_size           = var.root_volume.size_gib
      volume_type           = "gp3"
      encrypted             = "true"
      delete_on_termination = "true"
    }
  }

  dynamic "tag_specifications" {
    for_each = ["instance", "volume"]
    content {
      resource_type = tag_specifications.value
      tags          = merge(local.tags, { Name = local.name })
    }
  }
}
