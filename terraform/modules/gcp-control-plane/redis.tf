# Two nodes, one the other's replica, at one address. What waits is in Redis: noeviction,
# or a full Redis would drop jobs in silence.
resource "google_redis_instance" "redis" {
  project                 = var.project_id
  region                  = var.region
  name                    = "${var.name}-redis"
  display_name            = "Redis of the Spillway control plane ${var.name}"
  tier                    = "STANDARD_HA"
  memory_size_gb          = var.redis_memory_gib
  redis_version           = "REDIS_7_2"
  authorized_network      = var.network
  connect_mode            = var.redis_connect_mode
  auth_enabled            = true
  transit_encryption_mode = "SERVER_AUTHENTICATION"
  redis_configs           = { maxmemory-policy = "noeviction" }
  labels                  = local.labels

  persistence_config {
    persistence_mode    = "RDB"
    rdb_snapshot_period = "ONE_HOUR"
  }
}
