// Package storetest holds a store.Store to its contract: [Run] is the suite that
// every way to open one must pass. [StartRedis] and [StartCluster] start real
// servers for the tests of any package.
package storetest
