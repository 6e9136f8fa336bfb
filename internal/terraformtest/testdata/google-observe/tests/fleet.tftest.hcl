mock_provider "google" {
  mock_resource "google_compute_address" {
    defaults = { address = "10.0.0.7" }
  }
  mock_resource "google_redis_instance" {
    defaults = { host = "10.0.0.8", port = 6378 }
  }
}

# Nothing is there yet, and what is not known does not decide how many of a thing there are.
run "plan" {
  command = plan
}

run "apply" {
  assert {
    condition     = yamldecode(output.yaml).pools[0].observe.metrics.port == 9252
    error_message = "nobody reads the runners' metrics"
  }
}
