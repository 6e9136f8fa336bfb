variable "pool_name" {
  description = "Name of the pool, in Spillway and on the group and everything that belongs to it. No two pools of a project have one name."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,19}[a-z0-9])?$", var.pool_name))
    error_message = "Use 1 to 21 of a-z, 0-9 and -, beginning and ending with a letter or digit: an account's id has 30 characters, of which 9 are taken."
  }
}

variable "project_id" {
  description = "Project of the group, and of everything that belongs to it."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "Use the id of a project, such as my-project: not its number, not its title."
  }
}

variable "region" {
  description = "Region of the group."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", var.region))
    error_message = "Use a region, such as europe-west1: not a zone."
  }
}

variable "zones" {
  description = "Zones of the region where instances may be. None: those that Google picks. Later changes make another group."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for zone in var.zones : startswith(zone, "${var.region}-")])
    error_message = "Name zones of the region, such as europe-west1-b."
  }
}

variable "min_idle_runners" {
  description = "Instances that Spillway keeps free beyond what the jobs need (`policy.idle_count`)."
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
  description = "The most instances: the pool's `policy.max`. A group of Google has no bounds of its own, so that this is the only one; it bounds what a mistake can cost."
  type        = number

  validation {
    condition     = var.max_runners >= 1 && var.max_runners <= 2000 && floor(var.max_runners) == var.max_runners
    error_message = "Use a whole number from 1 to 2000, the most that Google allows in one group."
  }
}

variable "runner_image" {
  description = "Image of the instances: Linux with systemd, bash, curl, python3 and Google's guest agent. One architecture, that of the binaries."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/global/images/(family/)?[a-z0-9-]+$", var.runner_image))
    error_message = "Use projects/PROJECT/global/images/NAME, or projects/PROJECT/global/images/family/NAME."
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

variable "tls_secret_id" {
  description = "Secret of Secret Manager that the instances read, the only one. JSON: `runner_token` (Spillway's, for this pool), optionally `ca`, and `cert` with `key` (PEM, for mutual TLS), and `gitlab_token` (the runner's, glrt-…) with `gitlab`."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/secrets/[A-Za-z0-9_-]{1,255}$", var.tls_secret_id))
    error_message = "Use the id of one secret, projects/PROJECT/secrets/NAME: no version, no pattern."
  }
}

variable "owner" {
  description = "The control plane that may scale this group: the label spillway-owner, and the plugin's setting `owner`."
  type        = string
  default     = "spillway"

  validation {
    condition     = can(regex("^[a-z0-9_-]{1,63}$", var.owner))
    error_message = "Use 1 to 63 lowercase letters, digits, _ and -: it is the value of a label."
  }
}

variable "network" {
  description = "Network of the instances, projects/PROJECT/global/networks/NAME. Its project has the firewall's rules, so that a shared network's is right too."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/global/networks/[a-z0-9-]+$", var.network))
    error_message = "Use projects/PROJECT/global/networks/NAME."
  }
}

variable "subnetwork" {
  description = "Subnet of the instances, with a way out to the control plane, Google (Private Google Access, or NAT) and what the jobs need."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/regions/[a-z0-9-]+/subnetworks/[a-z0-9-]+$", var.subnetwork))
    error_message = "Use projects/PROJECT/regions/REGION/subnetworks/NAME."
  }

  validation {
    condition     = strcontains(var.subnetwork, "/regions/${var.region}/")
    error_message = "The subnet is in another region than the group."
  }
}

variable "external_address" {
  description = "Gives each instance an address outside, for networks without NAT. Nobody can connect to it either."
  type        = bool
  default     = false
}

variable "machine_types" {
  description = "Types of machines, of one architecture. A pool of spot instances wants several: Google takes what it has. One instance is one, whatever its type: `jobs_per_instance` must fit the smallest."
  type        = list(string)
  default     = ["e2-standard-2"]

  validation {
    condition     = length(var.machine_types) >= 1 && length(distinct(var.machine_types)) == length(var.machine_types)
    error_message = "Name at least one type, each once."
  }
}

variable "spot" {
  description = "Spot instances: cheaper, and ended by Google with a notice of 30 seconds when it wants them. A group is spot or it is not: let another pool with priority 1 take what this one has no capacity for."
  type        = bool
  default     = false
}

variable "live_migration" {
  description = "Google moves running instances before maintenance. Machines with GPUs can't be moved: use false for them. It is nothing to spot instances."
  type        = bool
  default     = true
}

variable "secure_boot" {
  description = "Only signed kernels and drivers. Use false for an image with drivers that are not, as for some GPUs; vTPM and integrity monitoring stay."
  type        = bool
  default     = true
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
  description = "How long the jobs of an instance that is to go may go on (`policy.drain_timeout`). Google waits for nobody: a spot instance that it takes back has 30 seconds."
  type        = number
  default     = 3600

  validation {
    condition     = var.drain_timeout_seconds >= 60 && floor(var.drain_timeout_seconds) == var.drain_timeout_seconds
    error_message = "Use whole seconds, 60 or more."
  }
}

variable "metrics_source_service_accounts" {
  description = "Accounts whose instances may read gitlab-runner's metrics on port 9252, the only way in, such as the output `service_account` of gcp-control-plane. None: there is no way in, and the runner serves them on its loopback address."
  type        = list(string)
  default     = []

  # https://cloud.google.com/vpc/docs/quota#per_rule
  validation {
    condition     = length(var.metrics_source_service_accounts) <= 10
    error_message = "A rule of the firewall has at most 10 accounts."
  }
}

variable "egress_cidrs" {
  description = "Where the instances may connect to."
  type        = list(string)
  default     = ["0.0.0.0/0"]

  validation {
    condition     = length(var.egress_cidrs) >= 1
    error_message = "Instances that connect to nobody do nothing: name at least the control plane's and Google's addresses."
  }
}

variable "boot_disk" {
  description = "Boot disk: its size in GiB, its type, and the key of Cloud KMS that encrypts it if it is not Google's own. It is deleted with the instance."
  type = object({
    size_gib = optional(number, 50)
    type     = optional(string, "pd-balanced")
    kms_key  = optional(string)
  })
  default = {}
}

variable "labels" {
  description = "More labels, on the instances and their disks."
  type        = map(string)
  default     = {}

  validation {
    condition     = length(setintersection(keys(var.labels), ["spillway-owner", "spillway-pool", "spillway-keep"])) == 0
    error_message = "spillway-owner comes from owner, spillway-pool from pool_name, and spillway-keep would keep every instance for ever."
  }
}
