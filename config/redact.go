package config

import (
	"regexp"
	"slices"
	"strings"
)

// shape is how a secret looks, and what remains of it.
type shape struct {
	pattern *regexp.Regexp
	remains string
	// hints are what text with such a secret contains, in lower case. Looking for
	// them first makes the usual line of a log twenty times cheaper.
	hints []string
}

// nameOfSecret is how GitLab, AWS and everybody else name what is secret, in
// headers, settings and JSON.
const nameOfSecret = `(?:private|job|runner|deploy|gitlab|security|auth|access|session)[-_]?token` +
	`|passw(?:or)?d|secret(?:[-_]?access)?[-_]?key|api[-_]?key|client[-_]?secret`

// shapes are how tokens look in text that others wrote, above all in error
// strings of libraries. Each keeps what says which kind of thing was there, and
// keeps a line of JSON valid.
var shapes = []shape{
	// Private keys, whole or cut off, with real or escaped line ends.
	prefixed("begin", `-----BEGIN [A-Z ]*PRIVATE KEY-----`, `[A-Za-z0-9+/=\s\\]+(?:-----END [A-Z ]*PRIVATE KEY-----)?`),
	// GitLab: runner, personal, project, deploy, trigger, job, feed, agent tokens …
	prefixed("gl", `\bgl(?:rt|rtr|pat|dt|cbt|ptt|ft|soat|imt|agent|oas|ffct|wt)-`, `[A-Za-z0-9_.-]{8,}`),
	prefixed("gr1348941", `\bGR1348941`, `[A-Za-z0-9_-]{8,}`),
	// AWS access key ids.
	prefixed("akia asia", `\b(?:AKIA|ASIA)`, `[A-Z0-9]{12,}`),
	// Google: API keys and OAuth tokens.
	prefixed("aiza", `\bAIza`, `[A-Za-z0-9_-]{30,}`),
	prefixed("ya29", `\bya29\.`, `[A-Za-z0-9_.-]{8,}`),
	// JSON Web Tokens.
	prefixed("eyj", `\beyJ`, `[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`),
	// HTTP authorization.
	prefixed("bearer basic", `(?i:\b(?:bearer|basic)\s+)`, `[A-Za-z0-9._~+/=-]{6,}`),
	// Passwords in URLs.
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@"]*:)[^\s/@"]+@`), "${1}" + masked + "@", []string{"://"}},
	// NAME: value, NAME=value, "NAME":"value"; the value in quotes, in quotes that
	// are escaped since all of it is quoted text, without quotes.
	prefixed("token passw key secret", `(?i:`+nameOfSecret+`)"?\s*[=:]\s*"`, `(?:[^"\\]|\\.)+`),
	prefixed("token passw key secret", `(?i:`+nameOfSecret+`)\\"\s*[=:]\s*\\"`, `[^"\\]+`),
	prefixed("token passw key secret", `(?i:`+nameOfSecret+`)\\?"?\s*[=:]\s*`, `[^\s"&,;}\\]+`),
}

// prefixed is a shape whose prefix remains. hints are separated by blanks.
func prefixed(hints, prefix, secret string) shape {
	return shape{regexp.MustCompile("(" + prefix + ")" + secret), "${1}" + masked, strings.Fields(hints)}
}

// Redact masks everything in s that has the shape of a secret. It is the last
// net under logs and error texts, not a permission to put secrets there.
func Redact(s string) string {
	lower := strings.ToLower(s)
	for _, shape := range shapes {
		if slices.ContainsFunc(shape.hints, func(hint string) bool { return strings.Contains(lower, hint) }) {
			s = shape.pattern.ReplaceAllString(s, shape.remains)
		}
	}
	return s
}
