output "coordinator_host" {
  description = "Name of the load balancer. The certificate of the replicas must be for the name that runners dial: this one, or an alias of yours."
  value       = aws_lb.internal.dns_name
}

output "coordinator_zone_id" {
  description = "Its hosted zone, for an alias record."
  value       = aws_lb.internal.zone_id
}

output "replica_names" {
  description = "Names by which replicas reach each other, as a certificate has them. Theirs must be for it too, if somebody has the role debug or pools are in mode route."
  value       = "*.${local.replica_domain}"
}

output "redis_addr" {
  description = "Address of Redis, for `redis.addrs` of spillway-config."
  value       = "${aws_elasticache_replication_group.redis.primary_endpoint_address}:6379"
}

output "role_arn" {
  description = "Role of the replicas."
  value       = aws_iam_role.replica.arn
}

output "security_group_id" {
  description = "Security group of the replicas: `metrics_source_sg` of pools whose metrics they read."
  value       = aws_security_group.replicas.id
}

output "asg_name" {
  description = "Group of the replicas."
  value       = aws_autoscaling_group.replicas.name
}

output "user_data" {
  description = "What a replica runs at its first boot."
  value       = local.user_data
}
