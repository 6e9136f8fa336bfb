//go:build race

package simcloud_test

const underRace = true
