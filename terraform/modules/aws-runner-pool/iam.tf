# The instances' role. Jobs can use it: it reads the pool's secret and writes the pool's
# logs, and has no right on the group, on other instances or on IAM.
resource "aws_iam_role" "runner" {
  name                 = "${local.name}-${data.aws_region.current.name}"
  description          = "Runners of the Spillway pool ${var.pool_name}"
  permissions_boundary = var.permissions_boundary_arn
  tags                 = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

locals {
  decrypt = var.tls_secret_kms_key_arn == null ? [] : [{
    Sid       = "DecryptSecret"
    Effect    = "Allow"
    Action    = ["kms:Decrypt"]
    Resource  = [var.tls_secret_kms_key_arn]
    Condition = { StringEquals = { "kms:ViaService" = "secretsmanager.${data.aws_region.current.name}.amazonaws.com" } }
  }]
}

resource "aws_iam_role_policy" "runner" {
  name = "runner"
  role = aws_iam_role.runner.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Sid      = "ReadSecret"
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = [var.tls_secret_arn]
      },
      {
        Sid      = "WriteLogs"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
        Resource = ["${aws_cloudwatch_log_group.runners.arn}:*"]
      },
    ], local.decrypt)
  })
}

resource "aws_iam_instance_profile" "runner" {
  name = aws_iam_role.runner.name
  role = aws_iam_role.runner.name
  tags = local.tags
}

resource "aws_cloudwatch_log_group" "runners" {
  name              = "/spillway/${var.pool_name}"
  retention_in_days = var.log_retention_days
  tags              = local.tags
}
