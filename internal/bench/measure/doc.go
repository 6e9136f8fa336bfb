// Package measure is how the benchmarks measure: several subjects take turns in
// rotated rounds, each figure is a median with its band, each ratio is to a
// reference of the same round, and a row that others on the machine have disturbed
// is neither passed nor failed.
//
// Absolute rates drift by a factor of two on a shared machine; ratios within one
// round do not. What can be counted exactly is counted, and is never excused.
package measure
