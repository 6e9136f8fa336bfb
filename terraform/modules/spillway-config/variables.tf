variable "pools" {
  description = "The pools: the outputs `spillway_pool` of aws-runner-pool and gcp-runner-pool. Pools of one cloud account and region have one provider, with the same `config` (JSON)."
  type = list(object({
    name                  = string
    mode                  = string
    group                 = string
    priority              = number
    capacity_per_instance = number
    capability = object({
      tags         = list(string)
      run_untagged = bool
      protected    = bool
    })
    agent        = optional(bool, true) # machines register with us
    drain        = optional(string)     # observe.drain
    metrics_port = optional(number)     # observe.metrics.port
    policy = object({
      max           = number
      idle_count    = number
      drain_timeout = string
    })
    provider = object({
      name   = string
      plugin = string
      config = string
    })
  }))

  validation {
    condition     = length(var.pools) >= 1 && length(distinct(var.pools[*].name)) == length(var.pools)
    error_message = "At least one pool, and each name once."
  }

  validation {
    condition     = length(distinct([for p in var.pools : "${p.provider.name} ${p.group}"])) == length(var.pools)
    error_message = "Two pools have one group: they would fight for its size."
  }

  validation {
    condition     = length(distinct([for p in var.pools : jsonencode(p.provider)])) == length(distinct(var.pools[*].provider.name))
    error_message = "Pools with one provider need the same settings of it: project, owner, drain and heartbeat timeouts, queue. Pass the first pool's notices to the others."
  }
}

variable "policies" {
  description = "More of each pool's `policy`, by the pool's name: `{ linux = { min = 1, idle_time = \"15m\" } }`. `max` stays the group's."
  type        = any
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.policies), var.pools[*].name)) == 0
    error_message = "A policy of a pool that is not among pools."
  }

  validation {
    condition     = alltrue([for policy in values(var.policies) : !contains(keys(policy), "max")])
    error_message = "The most instances are set where the group is: max_runners of the pool's module."
  }
}

variable "provider_settings" {
  description = "More of each provider's `config`, by its name: `{ aws-eu-central-1 = { api_rate = { per_second = 10, burst = 50 } } }`, `{ gce-europe-west1 = { api_rate = 20 } }`."
  type        = any
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.provider_settings), var.pools[*].provider.name)) == 0
    error_message = "Settings of a provider that no pool has."
  }
}

variable "plugin_dir" {
  description = "Where the plugins are, on the control plane's machines."
  type        = string
  default     = "/usr/lib/spillway/plugins"
}

variable "plugin_sha256" {
  description = "SHA-256 of the plugins' binaries, by name. One that differs is not started."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for sum in values(var.plugin_sha256) : can(regex("^[0-9a-f]{64}$", sum))])
    error_message = "A SHA-256 has 64 digits of 0-9 and a-f."
  }
}

variable "token_dir" {
  description = "Folder with a file for each pool, by its name: the token that its runners register with; in mode route also NAME.gitlab, the runners' token of GitLab."
  type        = string
  default     = "/run/spillway/tokens"
}

variable "listen" {
  description = "The section `listen`. Other addresses than loopback ones need tls."
  type        = any
  default     = {}
}

variable "redis" {
  description = "The section `store.redis`: the output `redis` of gcp-control-plane, or one of yours. Null: the store is inside the process, for one replica."
  type        = any
  default     = null
}

variable "settings" {
  description = "More sections of the configuration as they stand in it: `gitlab`, `access`, `audit`, `log` and so on. Never a secret: they are in the state and in the file."
  type        = any
  default     = {}

  validation {
    condition     = alltrue([for p in var.pools : p.mode == "orchestrate"]) || can(var.settings.gitlab.url)
    error_message = "Pools in mode observe or route need settings.gitlab.url."
  }

  validation {
    condition     = length(setintersection(keys(var.settings), ["listen", "store", "plugin_dir", "providers", "pools"])) == 0
    error_message = "listen, store, plugin_dir, providers and pools come from the other variables."
  }
}
