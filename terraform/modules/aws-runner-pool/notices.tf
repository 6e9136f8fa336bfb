# What AWS says of instances that it ends, for machines whose agent does not run yet or
# not any more. The rules hear of every instance of the account in the region: the
# plugin leaves out what is none of its groups'.
locals {
  makes_notices = var.notices == null

  notices = local.makes_notices ? {
    queue_name = aws_sqs_queue.notices[0].name
    queue_arn  = aws_sqs_queue.notices[0].arn
    queue_url  = aws_sqs_queue.notices[0].url
  } : var.notices

  notice_patterns = {
    spot = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"]
    }
    state = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Instance State-change Notification"]
      detail      = { state = ["shutting-down", "terminated", "stopping", "stopped"] }
    }
    hook = {
      source      = ["aws.autoscaling"]
      detail-type = ["EC2 Instance-terminate Lifecycle Action"]
    }
  }
}

resource "aws_sqs_queue" "notices" {
  count = local.makes_notices ? 1 : 0

  name                       = "${local.name}-notices"
  message_retention_seconds  = 900 # a notice is worth nothing later
  visibility_timeout_seconds = 30
  sqs_managed_sse_enabled    = true
  tags                       = local.tags
}

resource "aws_cloudwatch_event_rule" "notices" {
  for_each = { for key, pattern in local.notice_patterns : key => pattern if local.makes_notices }

  name          = "${local.name}-${each.key}"
  description   = "Notices of instances that end, for Spillway"
  event_pattern = jsonencode(each.value)
  tags          = local.tags
}

resource "aws_cloudwatch_event_target" "notices" {
  for_each = aws_cloudwatch_event_rule.notices

  rule = each.value.name
  arn  = aws_sqs_queue.notices[0].arn
}

resource "aws_sqs_queue_policy" "notices" {
  count = local.makes_notices ? 1 : 0

  queue_url = aws_sqs_queue.notices[0].url

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "OnlyOurRules"
      Effect    = "Allow"
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.notices[0].arn
      Principal = { Service = "events.amazonaws.com" }
      Condition = { ArnEquals = { "aws:SourceArn" = [for key in sort(keys(local.notice_patterns)) : aws_cloudwatch_event_rule.notices[key].arn] } }
    }]
  })
}
