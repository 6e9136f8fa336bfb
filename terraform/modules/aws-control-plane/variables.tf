variable "name" {
  description = "Name of this control plane, on everything that belongs to it."
  type        = string
  default     = "spillway"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,23}$", var.name)) && !endswith(var.name, "-")
    error_message = "Use 1 to 24 of a-z, 0-9 and -, beginning with a letter: a load balancer's name has 32."
  }
}

variable "owner" {
  description = "Owner of the pools: the plugin may write only to groups whose tag spillway-owner is this."
  type        = string
  default     = "spillway"

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]{1,64}$", var.owner))
    error_message = "Use 1 to 64 letters, digits, dots, - and _."
  }
}

variable "group_names" {
  description = "Groups that may be scaled: the outputs `runner_asg_name` of the pools."
  type        = list(string)

  validation {
    condition     = length(var.group_names) >= 1 && alltrue([for name in var.group_names : can(regex("^[A-Za-z0-9_.-]+$", name))])
    error_message = "Name at least one group, each in full: no pattern."
  }
}

variable "notices_queue_arns" {
  description = "Queues of notices: `notices.queue_arn` of the pool that made one."
  type        = list(string)
  default     = []
}

variable "config_yaml" {
  description = "spillway.yaml: the output `yaml` of the module spillway-config. It must have no secret."
  type        = string

  validation {
    condition     = can(keys(yamldecode(var.config_yaml)))
    error_message = "Use YAML whose top is an object."
  }
}

variable "secret_arn" {
  description = "Secret that the replicas read. JSON: `cert` and `key` (PEM, of the listeners), `redis_password`, and `tokens`, an object with what each file of the pools' tokens has, by its name; optionally `files`, an object of more files in /run/spillway, by name."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+$", var.secret_arn))
    error_message = "Use the ARN of one secret: no pattern."
  }
}

variable "secret_kms_key_arn" {
  description = "Key that encrypts the secret, if it is not AWS's own."
  type        = string
  default     = null
}

variable "redis_auth_token" {
  description = "Auth token of Redis, the `redis_password` of the secret: 16 to 128 characters. AWS's provider has no write-only argument for it, so it is in the state: encrypt that, and let few read it."
  type        = string
  sensitive   = true

  # https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth.html
  validation {
    condition     = can(regex("^[A-Za-z0-9!&#$^<>-]{16,128}$", var.redis_auth_token))
    error_message = "Use 16 to 128 letters, digits and !&#$^<>-."
  }
}

variable "redis_node_type" {
  description = "Type of the two Redis nodes."
  type        = string
  default     = "cache.t4g.small"
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
  description = "The spillway-provider-ec2asg binary for the image's architecture, and its SHA-256. Give spillway-config the same one."
  type = object({
    url    = string
    sha256 = string
  })

  validation {
    condition     = can(regex("^https://[^'\\s]+$", var.plugin.url)) && can(regex("^[0-9a-f]{64}$", var.plugin.sha256))
    error_message = "url begins with https://, sha256 has 64 digits of 0-9 and a-f."
  }
}

variable "ami" {
  description = "Image of the replicas: Linux with systemd, bash, curl, python3 and the aws command."
  type        = string

  validation {
    condition     = can(regex("^ami-([0-9a-f]{8}|[0-9a-f]{17})$", var.ami))
    error_message = "Use the id of an image, such as ami-0123456789abcdef0."
  }
}

variable "instance_type" {
  description = "Type of the replicas."
  type        = string
  default     = "t3.small"
}

variable "vpc_id" {
  description = "Network of the replicas, of Redis and of the load balancer."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets in two zones or more."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "Two replicas want two subnets, in different zones."
  }
}

variable "runner_security_group_ids" {
  description = "Who may register as a runner (port 7700): the outputs `runner_sg_id` of the pools, by any name that is known before they are made."
  type        = map(string)
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

variable "log_retention_days" {
  description = "How long CloudWatch keeps the logs. They are sent by amazon-cloudwatch-agent if the image has it."
  type        = number
  default     = 30
}

variable "tags" {
  description = "More tags, on everything."
  type        = map(string)
  default     = {}
}
