output "yaml" {
  description = "spillway.yaml: what `controlplane serve --config` reads. It has no secret."
  value       = local.yaml
}

output "groups" {
  description = "The groups, by provider."
  value       = { for name, provider in local.providers : name => provider.config.groups }
}

output "token_files" {
  description = "Files with secrets that the control plane's machines need."
  value = concat(
    [for p in var.pools : "${var.token_dir}/${p.name}" if p.agent],
    [for p in var.pools : "${var.token_dir}/${p.name}.gitlab" if p.mode == "route"],
  )
}
