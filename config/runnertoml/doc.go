// Package runnertoml turns the autoscaling part of a GitLab Runner's config.toml into
// pools. What has no equivalent is never dropped silently: each such setting is a note.
//
// What the settings mean is GitLab Runner's documentation (docs/configuration/
// advanced-configuration.md, "The [runners.autoscaler] section") and its source
// (common/config.go, AutoscalerConfig).
package runnertoml
