mock_provider "google" {
  mock_resource "google_service_account" {
    defaults = { email = "spillway-linux@my-project.iam.gserviceaccount.com" }
  }
  mock_resource "google_compute_region_instance_group_manager" {
    defaults = { target_size = 0 }
  }
}

run "pool" {}
