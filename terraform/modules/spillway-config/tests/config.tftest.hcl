variables {
  settings = { gitlab = { url = "https://gitlab.example.com" } }
  pools = [
    {
      name       = "linux", mode = "orchestrate", group = "spillway-linux", priority = 0, capacity_per_instance = 2
      capability = { tags = ["linux"], run_untagged = false, protected = false }
      policy     = { max = 20, idle_count = 1, drain_timeout = "3600s" }
      provider   = { name = "aws-eu-central-1", plugin = "spillway-provider-ec2asg", config = "{\"owner\":\"spillway\",\"region\":\"eu-central-1\"}" }
    },
    {
      name       = "gitlab", mode = "observe", group = "spillway-gitlab", priority = 1, capacity_per_instance = 1, drain = "sidecar"
      capability = { tags = ["docker"], run_untagged = false, protected = false }
      policy     = { max = 5, idle_count = 0, drain_timeout = "3600s" }
      provider   = { name = "aws-eu-central-1", plugin = "spillway-provider-ec2asg", config = "{\"owner\":\"spillway\",\"region\":\"eu-central-1\"}" }
    },
  ]
}

# A pool that is added in Terraform is a pool in Spillway, and one provider has the
# groups of all its pools.
run "pools_of_one_account_share_a_provider" {
  variables {
    policies      = { linux = { min = 1 } }
    plugin_sha256 = { spillway-provider-ec2asg = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
    redis         = { addrs = ["redis.internal:6379"], tls = {} }
  }
  assert {
    condition     = jsonencode(output.groups) == jsonencode({ aws-eu-central-1 = ["spillway-gitlab", "spillway-linux"] })
    error_message = "not both groups in one provider"
  }
  assert {
    condition     = jsonencode(yamldecode(output.yaml).pools[0].policy) == jsonencode({ drain_timeout = "3600s", idle_count = 1, max = 20, min = 1 })
    error_message = "the policy is not that of the module and of policies"
  }
  assert {
    condition     = yamldecode(output.yaml).pools[1].observe.drain == "sidecar" && !can(yamldecode(output.yaml).pools[0].observe)
    error_message = "observe belongs to one pool"
  }
  assert {
    condition     = yamldecode(output.yaml).providers.aws-eu-central-1.sha256 == "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    error_message = "the plugin is not pinned"
  }
}

# Every shape of a pool. The Go tests hold what comes out to Spillway's own rules.
run "shapes" {
  variables {
    pools = [for p in [
      { name = "a", mode = "orchestrate", agent = true, drain = null, port = null },
      { name = "b", mode = "observe", agent = true, drain = "sidecar", port = 9252 },
      { name = "c", mode = "route", agent = false, drain = null, port = null },
      { name = "d", mode = "route", agent = true, drain = null, port = 9252 },
      ] : {
      name       = p.name, mode = p.mode, group = p.name, priority = 0, capacity_per_instance = 1, agent = p.agent, drain = p.drain, metrics_port = p.port
      capability = { tags = ["linux"], run_untagged = false, protected = false }
      policy     = { max = 1, idle_count = 0, drain_timeout = "60s" }
      provider   = { name = "aws", plugin = "spillway-provider-ec2asg", config = "{\"region\":\"eu-central-1\"}" }
    }]
    listen   = { job_router = "127.0.0.1:7704", gitlab = "127.0.0.1:7703" }
    redis    = { addrs = ["redis.internal:6379"], password_file = "/run/spillway/redis_password", tls = {} }
    settings = { gitlab = { url = "https://gitlab.example.com", route = { server_url = "wss://spillway.example.com/router", front = true, advertise = "10.0.0.5:7704" } } }
  }
  assert {
    condition     = length(output.token_files) == 5
    error_message = "a file for each token"
  }
}

# Pools of two clouds are two providers, each with its own plugin and settings.
run "two_clouds" {
  variables {
    pools = [for p in [
      { name = "spot", cloud = "gce-europe-west1", plugin = "spillway-provider-gcemig", config = { project = "my-project", region = "europe-west1", owner = "ci" } },
      { name = "on-demand", cloud = "gce-europe-west1", plugin = "spillway-provider-gcemig", config = { project = "my-project", region = "europe-west1", owner = "ci" } },
      { name = "elsewhere", cloud = "aws-eu-central-1", plugin = "spillway-provider-ec2asg", config = { region = "eu-central-1", owner = "ci" } },
      ] : {
      name       = p.name, mode = "orchestrate", group = "spillway-${p.name}", priority = 0, capacity_per_instance = 1
      capability = { tags = ["linux"], run_untagged = false, protected = false }
      policy     = { max = 5, idle_count = 0, drain_timeout = "60s" }
      provider   = { name = p.cloud, plugin = p.plugin, config = jsonencode(p.config) }
    }]
    provider_settings = { gce-europe-west1 = { api_rate = 20 } }
    plugin_sha256     = { spillway-provider-gcemig = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
    redis             = { addrs = ["10.0.0.8:6378"], password_file = "/run/spillway/redis_password", tls = { ca_file = "/run/spillway/redis_ca" } }
  }
  assert {
    condition     = jsonencode(output.groups) == jsonencode({ aws-eu-central-1 = ["spillway-elsewhere"], gce-europe-west1 = ["spillway-on-demand", "spillway-spot"] })
    error_message = "not each group with its own cloud"
  }
  assert {
    condition     = jsonencode(yamldecode(output.yaml).providers.gce-europe-west1) == jsonencode({ config = { api_rate = 20, groups = ["spillway-on-demand", "spillway-spot"], owner = "ci", project = "my-project", region = "europe-west1" }, plugin = "spillway-provider-gcemig", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" })
    error_message = "not what the plugin for Google takes"
  }
  assert {
    condition     = !can(yamldecode(output.yaml).providers.aws-eu-central-1.sha256) && !can(yamldecode(output.yaml).providers.aws-eu-central-1.config.api_rate)
    error_message = "one cloud has the other's settings"
  }
}

run "two_projects_in_one_provider_are_refused" {
  command = plan
  variables {
    pools = [for p in [{ n = "a", project = "my-project" }, { n = "b", project = "another-project" }] : {
      name       = p.n, mode = "orchestrate", group = p.n, priority = 0, capacity_per_instance = 1
      capability = { tags = ["linux"], run_untagged = false, protected = false }
      policy     = { max = 1, idle_count = 0, drain_timeout = "60s" }
      provider   = { name = "gce-europe-west1", plugin = "spillway-provider-gcemig", config = jsonencode({ project = p.project, region = "europe-west1" }) }
    }]
  }
  expect_failures = [var.pools]
}

run "observe_needs_gitlab" {
  command = plan
  variables {
    settings = {}
  }
  expect_failures = [var.settings]
}

run "the_group_says_the_maximum" {
  command = plan
  variables {
    policies = { linux = { max = 50 } }
  }
  expect_failures = [var.policies]
}

run "a_policy_of_no_pool_is_refused" {
  command = plan
  variables {
    policies = { linus = { min = 1 } }
  }
  expect_failures = [var.policies]
}

run "pools_must_agree_about_their_provider" {
  command = plan
  variables {
    pools = [for p in [{ n = "a", o = "us" }, { n = "b", o = "them" }] : {
      name       = p.n, mode = "orchestrate", group = p.n, priority = 0, capacity_per_instance = 1
      capability = { tags = ["linux"], run_untagged = false, protected = false }
      policy     = { max = 1, idle_count = 0, drain_timeout = "60s" }
      provider   = { name = "aws", plugin = "spillway-provider-ec2asg", config = "{\"owner\":\"${p.o}\"}" }
    }]
  }
  expect_failures = [var.pools]
}

run "two_pools_with_one_group_are_refused" {
  command = plan
  variables {
    pools = [for n in ["a", "b"] : {
      name       = n, mode = "orchestrate", group = "same", priority = 0, capacity_per_instance = 1
      capability = { tags = ["linux"], run_untagged = false, protected = false }
      policy     = { max = 1, idle_count = 0, drain_timeout = "60s" }
      provider   = { name = "aws", plugin = "spillway-provider-ec2asg", config = "{}" }
    }]
  }
  expect_failures = [var.pools]
}
