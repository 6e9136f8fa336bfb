data "aws_region" "current" {}
data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}

locals {
  tags   = merge(var.tags, { spillway-control-plane = var.name })
  here   = "${data.aws_region.current.name}:${data.aws_caller_identity.current.account_id}"
  groups = [for name in var.group_names : "arn:${data.aws_partition.current.partition}:autoscaling:${local.here}:autoScalingGroup:*:autoScalingGroupName/${name}"]
}

resource "aws_iam_role" "replica" {
  name        = "${var.name}-control-plane-${data.aws_region.current.name}"
  description = "Replicas of the Spillway control plane ${var.name}"
  tags        = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

# Writes only to the pools' groups, and only while their tag names our owner. No right to
# change a group's settings, to end instances but by the group, or to pass a role.
resource "aws_iam_role_policy" "scale" {
  name = "scale"
  role = aws_iam_role.replica.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Sid    = "Read"
        Effect = "Allow"
        Action = [
          "autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances", "autoscaling:DescribeScalingActivities",
          "autoscaling:DescribeLifecycleHooks", "autoscaling:DescribePolicies", "autoscaling:DescribeInstanceRefreshes",
          "ec2:DescribeInstances", "cloudwatch:GetMetricData",
        ]
        Resource = ["*"] # AWS knows no narrower one for these
      },
      {
        Sid    = "Scale"
        Effect = "Allow"
        Action = [
          "autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup", "autoscaling:SetInstanceProtection",
          "autoscaling:SetInstanceHealth", "autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat",
        ]
        Resource  = local.groups
        Condition = { StringEquals = { "autoscaling:ResourceTag/spillway-owner" = var.owner } }
      },
      ],
      [for arns in [var.notices_queue_arns] : {
        Sid      = "Notices"
        Effect   = "Allow"
        Action   = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueUrl"]
        Resource = arns
    } if length(arns) > 0])
  })
}

resource "aws_iam_role_policy" "replica" {
  name = "replica"
  role = aws_iam_role.replica.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Sid      = "ReadSecret"
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = [var.secret_arn]
      },
      {
        Sid      = "ReadConfig"
        Effect   = "Allow"
        Action   = ["ssm:GetParameter"]
        Resource = [aws_ssm_parameter.config.arn]
      },
      {
        Sid      = "WriteLogs"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
        Resource = ["${aws_cloudwatch_log_group.replicas.arn}:*"]
      },
      ],
      [for key in [var.secret_kms_key_arn] : {
        Sid       = "DecryptSecret"
        Effect    = "Allow"
        Action    = ["kms:Decrypt"]
        Resource  = [key]
        Condition = { StringEquals = { "kms:ViaService" = "secretsmanager.${data.aws_region.current.name}.amazonaws.com" } }
    } if key != null])
  })
}

resource "aws_iam_instance_profile" "replica" {
  name = aws_iam_role.replica.name
  role = aws_iam_role.replica.name
  tags = local.tags
}

resource "aws_cloudwatch_log_group" "replicas" {
  name              = "/spillway/control-plane/${var.name}"
  retention_in_days = var.log_retention_days
  tags              = local.tags
}
