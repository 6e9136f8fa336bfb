locals {
  pools_of = { for p in var.pools : p.provider.name => p... }

  providers = {
    for name, pools in local.pools_of : name => merge(
      { plugin = pools[0].provider.plugin },
      { for sum in compact([lookup(var.plugin_sha256, pools[0].provider.plugin, "")]) : "sha256" => sum },
      { config = merge(
        jsondecode(pools[0].provider.config),
        { groups = sort(pools[*].group) },
        try(var.provider_settings[name], {}),
      ) },
    )
  }

  pools = [
    for p in var.pools : merge(
      {
        name                  = p.name
        mode                  = p.mode
        capability            = p.capability
        priority              = p.priority
        capacity_per_instance = p.capacity_per_instance
        provider              = p.provider.name
        group                 = p.group
        policy                = merge(p.policy, try(var.policies[p.name], {}))
      },
      # What a setting needs is left out where there is none of it.
      { for agent in [p.agent] : "runner_token" => { file = "${var.token_dir}/${p.name}" } if agent },
      { for mode in [p.mode] : "gitlab" => { token = { file = "${var.token_dir}/${p.name}.gitlab" } } if mode == "route" },
      { for observe in [merge(
        { for drain in [p.drain] : "drain" => drain if drain != null },
        { for port in [p.metrics_port] : "metrics" => { port = port } if port != null },
      )] : "observe" => observe if length(observe) > 0 },
    )
  ]

  # Objects of different shapes are merged as texts: Terraform wants both sides of a
  # conditional to be alike.
  yaml = join("", compact([
    "# Made by Terraform from the runner pools: change it there.\n",
    length(var.listen) > 0 ? yamlencode({ listen = var.listen }) : "",
    var.redis != null ? yamlencode({ store = { redis = var.redis } }) : "",
    length(var.settings) > 0 ? yamlencode(var.settings) : "",
    yamlencode({ plugin_dir = var.plugin_dir, providers = local.providers, pools = local.pools }),
  ]))
}
