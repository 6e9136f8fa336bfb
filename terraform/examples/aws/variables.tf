variable "region" {
  description = "Region of everything."
  type        = string
}

variable "vpc_id" {
  description = "Network of everything."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets in two zones or more, with a way out."
  type        = list(string)
}

variable "zone_id" {
  description = "Hosted zone (Route 53) of `coordinator_name`."
  type        = string
}

variable "coordinator_name" {
  description = "Name of the control plane, such as spillway.example.com. Its certificate is for it."
  type        = string
}

variable "ami" {
  description = "Image of all instances: Linux with systemd, bash, curl, python3 and the aws command."
  type        = string
}

variable "binaries" {
  description = "Spillway's binaries for the image's architecture, each with its SHA-256: what you have built (`make build`) and put where the instances can download it."
  type = object({
    agent        = object({ url = string, sha256 = string })
    controlplane = object({ url = string, sha256 = string })
    plugin       = object({ url = string, sha256 = string })
  })
}

variable "secrets" {
  description = "ARNs of three secrets: of the control plane and of each pool. What must be in them is in the modules' variables secret_arn and tls_secret_arn."
  type = object({
    control_plane = string
    spot          = string
    on_demand     = string
  })
}

variable "redis_auth_token" {
  description = "The `redis_password` of the control plane's secret."
  type        = string
  sensitive   = true
}

variable "api_cidrs" {
  description = "Who may reach the API."
  type        = list(string)
  default     = []
}
