output "coordinator_address" {
  description = "Address of the load balancer, for a record of yours. The certificate of the replicas must be for the name that runners dial."
  value       = google_compute_address.internal.address
}

output "replica_names" {
  description = "Names by which replicas reach each other, as a certificate has them. Theirs must be for them too, if somebody has the role debug or pools are in mode route."
  value       = [for zone in var.zones : "*.${zone}.c.${var.project_id}.internal"]
}

output "redis" {
  description = "How the replicas get to Redis, for `redis` of spillway-config. The password and Google's certificate authority are in the files that it names."
  value = {
    addrs         = ["${google_redis_instance.redis.host}:${google_redis_instance.redis.port}"]
    password_file = "/run/spillway/redis_password"
    tls           = { ca_file = "/run/spillway/redis_ca" }
  }
}

output "service_account" {
  description = "Email of the replicas' account: for `metrics_source_service_accounts` of pools whose metrics they read."
  value       = google_service_account.replica.email
}

output "role_ids" {
  description = "The custom roles of that account, by what they are for: scale, secret, logs."
  value       = { for key, role in google_project_iam_custom_role.replica : key => role.id }
}

output "mig_name" {
  description = "Group of the replicas."
  value       = google_compute_region_instance_group_manager.replicas.name
}

output "startup_script" {
  description = "What a replica runs at each boot."
  value       = local.startup_script
}
