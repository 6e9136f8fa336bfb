// Package controlplane puts one replica together from a configuration: store,
// plugins, router, scaler and listeners; runs it, and takes it down in an order in
// which nothing is left behind.
package controlplane
