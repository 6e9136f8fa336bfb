// Package jobfile reads files of jobs, one JSON object a line, as spillwayctl and
// the demo take them:
//
//	{"id": "lint-1", "tags": ["linux"], "script": "make lint", "timeout": "10m"}
//
// Every mistake of a file is reported at once with its line; a file with one is
// not used at all. The package reads and validates; pushing is somebody else's.
package jobfile
