// Command agent is the process that runs on an instance of a pool and takes jobs
// from a Spillway router. It is built as bin/spillway-agent.
package main
