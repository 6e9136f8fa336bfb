variable "pool_name" {
  description = "Name of the pool, in Spillway and on the group and everything that belongs to it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9_-]{0,37}$", var.pool_name))
    error_message = "Use 1 to 38 of a-z, 0-9, - and _, beginning with a letter or digit: IAM's names have 64 characters, of which 26 are taken."
  }
}

variable "min_idle_runners" {
  description = "Instances that Spillway keeps free beyond what the jobs need (`policy.idle_count`). The group's own min size is always 0."
  type        = number
  default     = 0

  validation {
    condition     = var.min_idle_runners >= 0 && floor(var.min_idle_runners) == var.min_idle_runners
    error_message = "Use a whole number, 0 or more."
  }

  validation {
    condition     = var.min_idle_runners <= var.max_runners
    error_message = "More idle runners than max_runners allows."
  }
}

variable "max_runners" {
  description = "The most instances: the group's max size and the pool's `policy.max`. It bounds what a mistake can cost."
  type        = number

  validation {
    condition     = var.max_runners >= 1 && var.max_runners <= 10000 && floor(var.max_runners) == var.max_runners
    error_message = "Use a whole number from 1 to 10000: a group with max size 0 never starts anything."
  }
}

variable "runner_ami" {
  description = "Image of the instances: Linux with systemd, bash, curl, python3 and the aws command. One architecture, that of the binaries."
  type        = string

  validation {
    condition     = can(regex("^ami-([0-9a-f]{8}|[0-9a-f]{17})$", var.runner_ami))
    error_message = "Use the id of an image, such as ami-0123456789abcdef0."
  }
}

variable "coordinator_addr" {
  description = "Where the control plane listens for runners (`listen.runners`), host:port. In mode route without an agent it is not used: runners find their router at GitLab's address."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?:[1-9][0-9]{0,4}$", var.coordinator_addr))
    error_message = "Use host:port, such as spillway.internal:7700, without a scheme."
  }
}

variable "tls_secret_arn" {
  description = "Secret of AWS Secrets Manager that the instances read, the only one. JSON: `runner_token` (Spillway's, for this pool), optionally `ca`, and `cert` with `key` (PEM, for mutual TLS), and `gitlab_token` (the runner's, glrt-…) with `gitlab`."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+$", var.tls_secret_arn))
    error_message = "Use the ARN of one secret, arn:aws:secretsmanager:REGION:ACCOUNT:secret:NAME-SUFFIX: no pattern."
  }
}

variable "tls_secret_kms_key_arn" {
  description = "Key that encrypts the secret, if it is not AWS's own: the instances may then decrypt with it, by way of Secrets Manager only."
  type        = string
  default     = null

  validation {
    condition     = var.tls_secret_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.tls_secret_kms_key_arn))
    error_message = "Use the ARN of one key, arn:aws:kms:REGION:ACCOUNT:key/ID."
  }
}

variable "owner" {
  description = "The control plane that may scale this group: the tag spillway-owner, and the plugin's setting `owner`."
  type        = string
  default     = "spillway"

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]{1,64}$", var.owner))
    error_message = "Use 1 to 64 letters, digits, dots, - and _."
  }
}

variable "vpc_id" {
  description = "Network of the instances."
  type        = string
}

variable "subnet_ids" {
  description = "Subnets of the instances, one for each zone. Private ones, with a way out to the control plane, AWS and what the jobs need."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 1
    error_message = "Name at least one subnet."
  }
}

variable "instance_types" {
  description = "Types of instances, of one architecture. A pool of spot instances wants several: each is a market of its own. One instance is one, whatever its type: `jobs_per_instance` must fit the smallest."
  type        = list(string)
  default     = ["m6i.large", "m6a.large", "m5.large", "m5a.large"]

  validation {
    condition     = length(var.instance_types) >= 1 && length(var.instance_types) <= 40 && length(distinct(var.instance_types)) == length(var.instance_types)
    error_message = "Name 1 to 40 types, each once."
  }
}

variable "spot" {
  description = "Spot instances: the first `on_demand_base` are on demand, and `on_demand_percent` of all beyond them. 100 percent is a pool without spot."
  type = object({
    on_demand_base      = optional(number, 0)
    on_demand_percent   = optional(number, 100)
    allocation_strategy = optional(string, "price-capacity-optimized")
  })
  default = {}

  validation {
    condition     = var.spot.on_demand_base >= 0 && var.spot.on_demand_percent >= 0 && var.spot.on_demand_percent <= 100
    error_message = "on_demand_base is 0 or more, on_demand_percent 0 to 100."
  }

  validation {
    condition     = contains(["price-capacity-optimized", "capacity-optimized"], var.spot.allocation_strategy)
    error_message = "Use price-capacity-optimized or capacity-optimized: what is only cheap is interrupted most."
  }
}

variable "jobs_per_instance" {
  description = "Jobs that one instance runs at once (`capacity_per_instance`)."
  type        = number
  default     = 1

  validation {
    condition     = var.jobs_per_instance >= 1 && var.jobs_per_instance <= 1000 && floor(var.jobs_per_instance) == var.jobs_per_instance
    error_message = "Use a whole number from 1 to 1000."
  }
}

variable "mode" {
  description = "Who hands the jobs out: orchestrate (Spillway, to its agent), observe (GitLab, to gitlab-runner with the agent as its sidecar) or route (Spillway, to gitlab-runner)."
  type        = string
  default     = "orchestrate"

  validation {
    condition     = contains(["orchestrate", "observe", "route"], var.mode)
    error_message = "Use orchestrate, observe or route."
  }
}

variable "agent" {
  description = "The spillway-agent binary for the image's architecture: where it is, and its SHA-256. Nothing is run that has another. In mode route it is optional, a sidecar that tells when the runner idles."
  type = object({
    url    = string
    sha256 = string
  })
  default = null

  validation {
    condition     = var.agent != null || var.mode == "route"
    error_message = "Modes orchestrate and observe need the agent."
  }

  validation {
    condition     = var.agent == null || can(regex("^https://[^'\\s]+$", var.agent.url)) && can(regex("^[0-9a-f]{64}$", var.agent.sha256))
    error_message = "url begins with https://, sha256 has 64 digits of 0-9 and a-f."
  }
}

variable "gitlab" {
  description = "Modes observe and route: GitLab's address, the gitlab-runner binary and its SHA-256, and the executor (shell; or docker, with Docker in the image, and the default image of its jobs)."
  type = object({
    url           = string
    runner_url    = string
    runner_sha256 = string
    executor      = optional(string, "shell")
    docker_image  = optional(string, "debian:12-slim")
  })
  default = null

  validation {
    condition     = (var.gitlab != null) == (var.mode != "orchestrate")
    error_message = "Modes observe and route need gitlab, and mode orchestrate has none."
  }

  validation {
    condition     = var.gitlab == null || can(regex("^https://[^'\"\\s]+$", var.gitlab.url)) && can(regex("^https://[^'\\s]+$", var.gitlab.runner_url)) && can(regex("^[0-9a-f]{64}$", var.gitlab.runner_sha256))
    error_message = "url and runner_url begin with https://, runner_sha256 has 64 digits of 0-9 and a-f."
  }

  validation {
    condition     = var.gitlab == null || contains(["shell", "docker"], try(var.gitlab.executor, "")) && can(regex("^[A-Za-z0-9./:@_-]+$", var.gitlab.docker_image))
    error_message = "Use the executor shell or docker, and a name of an image."
  }
}

variable "capability" {
  description = "What the pool's runners take: tags, and whether jobs without tags and of protected refs only."
  type = object({
    tags         = list(string)
    run_untagged = optional(bool, false)
    protected    = optional(bool, false)
  })
}

variable "priority" {
  description = "0 is filled first, the next when that is full: a pool on demand with priority 1 takes what a spot pool has no capacity for."
  type        = number
  default     = 0

  validation {
    condition     = var.priority >= 0 && floor(var.priority) == var.priority
    error_message = "Use a whole number, 0 or more."
  }
}

variable "drain_timeout_seconds" {
  description = "How long the jobs of an instance that AWS ends may go on (`policy.drain_timeout`, `hooks.drain_timeout`)."
  type        = number
  default     = 3600

  validation {
    condition     = var.drain_timeout_seconds >= 60 && floor(var.drain_timeout_seconds) == var.drain_timeout_seconds
    error_message = "Use whole seconds, 60 or more."
  }

  # https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_LifecycleHook.html (GlobalTimeout)
  validation {
    condition     = var.drain_timeout_seconds <= min(100 * var.heartbeat_timeout_seconds, 172800)
    error_message = "AWS ends the wait after 100 heartbeats, and after 48 h: use a longer heartbeat_timeout_seconds, or a shorter drain."
  }
}

variable "heartbeat_timeout_seconds" {
  description = "How long AWS lets an instance wait without a word from Spillway."
  type        = number
  default     = 300

  # https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html
  validation {
    condition     = var.heartbeat_timeout_seconds >= 30 && var.heartbeat_timeout_seconds <= 7200 && floor(var.heartbeat_timeout_seconds) == var.heartbeat_timeout_seconds
    error_message = "AWS allows whole seconds from 30 to 7200."
  }
}

variable "wait_for_registration" {
  description = "Adds a launching hook: an instance goes into service when its agent has registered, and is ended if that does not happen within `heartbeat_timeout_seconds`. Not without an agent."
  type        = bool
  default     = false

  validation {
    condition     = !(var.wait_for_registration && var.agent == null)
    error_message = "Without an agent nothing registers: every instance would be ended."
  }
}

variable "metrics_source_sg" {
  description = "Security group that may read gitlab-runner's metrics on port 9252, the only way in. Null: there is none, and the runner serves them on its loopback address."
  type        = string
  default     = null
}

variable "extra_security_group_ids" {
  description = "More security groups of the instances."
  type        = list(string)
  default     = []
}

variable "egress_cidrs" {
  description = "Where the instances may connect to."
  type        = list(string)
  default     = ["0.0.0.0/0"]
}

variable "root_volume" {
  description = "Root volume: its device in the image, and its size in GiB. It is encrypted, and deleted with the instance."
  type = object({
    device   = optional(string, "/dev/xvda")
    size_gib = optional(number, 50)
  })
  default = {}
}

variable "log_retention_days" {
  description = "How long CloudWatch keeps the instances' logs. They are sent by amazon-cloudwatch-agent if the image has it."
  type        = number
  default     = 14
}

variable "notices" {
  description = "Notices of instances that AWS ends: where they go. Null: the module makes a queue and the rules that send to it. One control plane has one queue: give its second pool the first one's output `notices`, and no second rule is made."
  type = object({
    queue_name = string
    queue_arn  = string
    queue_url  = string
  })
  default = null
}

variable "permissions_boundary_arn" {
  description = "Permissions boundary of the instances' role."
  type        = string
  default     = null
}

variable "tags" {
  description = "More tags, on everything."
  type        = map(string)
  default     = {}

  validation {
    condition     = !contains(keys(var.tags), "spillway-owner") && !contains(keys(var.tags), "spillway-keep")
    error_message = "spillway-owner comes from owner, and spillway-keep would keep every instance for ever."
  }
}
