variable "project_id" {
  description = "Project of everything."
  type        = string
}

variable "region" {
  description = "Region of everything."
  type        = string
}

variable "zones" {
  description = "Zones of the control plane, two or three."
  type        = list(string)
}

variable "network" {
  description = "Network of everything, projects/PROJECT/global/networks/NAME."
  type        = string
}

variable "subnetwork" {
  description = "Subnet of the region, projects/PROJECT/regions/REGION/subnetworks/NAME, with Private Google Access and a way out."
  type        = string
}

variable "managed_zone" {
  description = "Zone of Cloud DNS, by its name there, of `coordinator_name`."
  type        = string
}

variable "coordinator_name" {
  description = "Name of the control plane, such as spillway.example.com. Its certificate is for it."
  type        = string
}

variable "image" {
  description = "Image of all instances: Linux with systemd, bash, curl, python3 and Google's guest agent."
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
  description = "Ids of three secrets: of the control plane and of each pool. What must be in them is in the modules' variables secret_id and tls_secret_id."
  type = object({
    control_plane = string
    spot          = string
    on_demand     = string
  })
}

variable "api_cidrs" {
  description = "Who may reach the API."
  type        = list(string)
  default     = []
}
