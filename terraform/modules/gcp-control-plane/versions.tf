terraform {
  required_version = ">= 1.9" # validations that look at other variables

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50, < 7.0"
    }
  }
}
