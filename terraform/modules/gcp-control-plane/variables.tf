variable "name" {
  description = "Name of this control plane, on everything that belongs to it. No two of a project have one name."
  type        = string
  default     = "spillway"

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,14}[a-z0-9])?$", var.name))
    error_message = "Use 1 to 16 of a-z, 0-9 and -, beginning with a letter: an account's id has 30 characters, of which 14 are taken."
  }
}

variable "project_id" {
  description = "Project of the control plane, and of the groups that it scales: its right to scale is for this project."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "Use the id of a project, such as my-project: not its number, not its title."
  }
}

variable "region" {
  description = "Region of the replicas, of Redis and of the load balancer."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+[0-9]+$", var.region))
    error_message = "Use a region, such as europe-west1: not a zone."
  }
}

variable "zones" {
  description = "Zones of the region where the replicas are, two or three. Later changes make another group."
  type        = list(string)

  validation {
    condition     = length(var.zones) >= 2 && length(distinct(var.zones)) == length(var.zones) && alltrue([for zone in var.zones : startswith(zone, "${var.region}-")])
    error_message = "Two replicas want two zones of the region, such as europe-west1-b and europe-west1-c."
  }
}

variable "config_yaml" {
  description = "spillway.yaml: the output `yaml` of the module spillway-config. It must have no secret of yours: it is in the state. `@REPLICA@` in it becomes the name of the replica that reads it, for `debug.advertise` and `gitlab.route.advertise`."
  type        = string

  # https://cloud.google.com/secret-manager/quotas
  validation {
    condition     = can(keys(yamldecode(var.config_yaml))) && length(var.config_yaml) <= 65536
    error_message = "Use YAML whose top is an object, of at most 65536 characters, what Secret Manager holds."
  }
}

variable "secret_id" {
  description = "Secret that the replicas read. JSON: `cert` and `key` (PEM, of the listeners), and `tokens`, an object with what each file of the pools' tokens has, by its name; optionally `files`, an object of more files in /run/spillway, by name. Redis's password is none of it: Google makes it."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/secrets/[A-Za-z0-9_-]{1,255}$", var.secret_id))
    error_message = "Use the id of one secret, projects/PROJECT/secrets/NAME: no version, no pattern."
  }
}

variable "redis_memory_gib" {
  description = "Memory of each of the two Redis nodes, in GiB."
  type        = number
  default     = 1

  validation {
    condition     = var.redis_memory_gib >= 1 && var.redis_memory_gib <= 300 && floor(var.redis_memory_gib) == var.redis_memory_gib
    error_message = "Use a whole number from 1 to 300."
  }
}

variable "redis_connect_mode" {
  description = "How Redis is in the network: DIRECT_PEERING, or PRIVATE_SERVICE_ACCESS, which a shared network needs and which must be set up in it."
  type        = string
  default     = "DIRECT_PEERING"

  validation {
    condition     = contains(["DIRECT_PEERING", "PRIVATE_SERVICE_ACCESS"], var.redis_connect_mode)
    error_message = "Use DIRECT_PEERING or PRIVATE_SERVICE_ACCESS."
  }
}

variable "controlplane" {
  description = "The controlplane binary for the image's architecture, and its SHA-256."
  type = object({
    url    = string
    sha256 = string
  })

  validation {
    condition     = can(regex("^https://[^'\\s]+$", var.controlplane.url)) && can(regex("^[0-9a-f]{64}$", var.controlplane.sha256))
    error_message = "url begins with https://, sha256 has 64 digits of 0-9 and a-f."
  }
}

variable "plugin" {
  description = "The spillway-provider-gcemig binary for the image's architecture, and its SHA-256. Give spillway-config the same one."
  type = object({
    url    = string
    sha256 = string
  })

  validation {
    condition     = can(regex("^https://[^'\\s]+$", var.plugin.url)) && can(regex("^[0-9a-f]{64}$", var.plugin.sha256))
    error_message = "url begins with https://, sha256 has 64 digits of 0-9 and a-f."
  }
}

variable "image" {
  description = "Image of the replicas: Linux with systemd, bash, curl, python3 and Google's guest agent."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/global/images/(family/)?[a-z0-9-]+$", var.image))
    error_message = "Use projects/PROJECT/global/images/NAME, or projects/PROJECT/global/images/family/NAME."
  }
}

variable "machine_type" {
  description = "Type of the replicas."
  type        = string
  default     = "e2-small"
}

variable "network" {
  description = "Network of the replicas, of Redis and of the load balancer, projects/PROJECT/global/networks/NAME. Its project has the firewall's rules."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/global/networks/[a-z0-9-]+$", var.network))
    error_message = "Use projects/PROJECT/global/networks/NAME."
  }
}

variable "subnetwork" {
  description = "Subnet of the replicas and of the load balancer's address, with a way out to Google (Private Google Access, or NAT) and to GitLab."
  type        = string

  validation {
    condition     = can(regex("^projects/[a-z0-9:.-]+/regions/[a-z0-9-]+/subnetworks/[a-z0-9-]+$", var.subnetwork))
    error_message = "Use projects/PROJECT/regions/REGION/subnetworks/NAME."
  }
}

variable "runner_service_accounts" {
  description = "Who may register as a runner (port 7700): the outputs `runner_service_account` of the pools, by any name that is known before they are made."
  type        = map(string)

  validation {
    condition     = alltrue([for name in keys(var.runner_service_accounts) : can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", name))])
    error_message = "Use names of 1 to 32 of a-z, 0-9 and -: they are part of a rule's name."
  }
}

variable "api_cidrs" {
  description = "Who may reach the API (port 7701): spillwayctl, CI systems."
  type        = list(string)
  default     = []
}

variable "gitlab_ports" {
  description = "Ports of `listen.gitlab` and `listen.job_router` in the configuration, such as `{ gitlab = 7703, job_router = 7704 }`. Runners reach both."
  type = object({
    gitlab     = optional(number)
    job_router = optional(number)
  })
  default = {}

  validation {
    condition     = alltrue([for port in [var.gitlab_ports.gitlab, var.gitlab_ports.job_router] : port == null ? true : port > 1023 && port < 65536 && !contains([7700, 7701, 7702], port)])
    error_message = "Use ports from 1024 to 65535, other than 7700, 7701 and 7702: the service has no right to lower ones."
  }
}

variable "gitlab_cidrs" {
  description = "Where GitLab's webhooks come from (port `gitlab_ports.gitlab`)."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.gitlab_cidrs) == 0 || var.gitlab_ports.gitlab != null
    error_message = "Nobody listens for webhooks: set gitlab_ports.gitlab."
  }
}

variable "global_access" {
  description = "Lets runners and people in other regions of the network connect too."
  type        = bool
  default     = false
}

variable "labels" {
  description = "More labels, on the replicas, their disks, Redis and the secrets."
  type        = map(string)
  default     = {}

  validation {
    condition     = !contains(keys(var.labels), "spillway-owner")
    error_message = "spillway-owner is for pools' instances."
  }
}
