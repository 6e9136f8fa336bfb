output "spillway_yaml" {
  description = "The configuration of the control plane."
  value       = module.config.yaml
}

output "api" {
  description = "For `spillwayctl --addr`."
  value       = "${var.coordinator_name}:7701"
}
