package gitlab

import (
	"fmt"
	"net/url"
	"strings"
)

// ScopeKind says whose jobs are meant.
type ScopeKind int

// The kinds of scopes.
const (
	Instance ScopeKind = iota // all jobs: needs an administrator's token
	Groups                    // the projects below Scope.Paths, in subgroups too
	Projects                  // the projects Scope.Paths

	scopeKinds = iota
)

func (k ScopeKind) String() string {
	switch k {
	case Instance:
		return "instance"
	case Groups:
		return "groups"
	case Projects:
		return "projects"
	default:
		return fmt.Sprintf("ScopeKind(%d)", int(k))
	}
}

// MaxScopePaths bounds a scope [paths].
const MaxScopePaths = 10_000

// Scope says whose jobs are meant.
type Scope struct {
	Kind  ScopeKind
	Paths []string // full paths of groups or projects
}

func (s Scope) validate() error {
	switch {
	case s.Kind < Instance || s.Kind > Projects:
		return fmt.Errorf("gitlab: scope %s: use instance, groups or projects", s.Kind)
	case s.Kind == Instance && len(s.Paths) > 0:
		return fmt.Errorf("gitlab: the scope instance has no paths")
	case s.Kind != Instance && len(s.Paths) == 0:
		return fmt.Errorf("gitlab: the scope %s needs at least one path", s.Kind)
	case len(s.Paths) > MaxScopePaths:
		return fmt.Errorf("gitlab: %d paths in a scope, at most %d are allowed", len(s.Paths), MaxScopePaths)
	}
	for _, p := range s.Paths {
		if strings.Trim(p, "/") == "" {
			return fmt.Errorf("gitlab: an empty path in the scope %s", s.Kind)
		}
	}
	return nil
}

// escaped is a full path as one segment of an address (doc/api/rest, "Namespaced paths").
func escaped(path string) string { return url.PathEscape(strings.Trim(path, "/")) }
