package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// protectionAge is how long a project's rules are believed [time].
const protectionAge = 10 * time.Minute

// maxRules bounds the rules of a project [rules].
const maxRules = 10_000

const rightRules = "it must be allowed to read the protected branches and tags of the project, which some versions of GitLab grant to maintainers only"

// protection is the names and patterns of a project's protected refs.
type protection struct{ branches, tags []string }

// learnProtected fills Protected in for the pending jobs.
func (c *Client) learnProtected(ctx context.Context, jobs []Job) error {
	for i := range jobs {
		j := &jobs[i]
		if j.Status != StatusPending {
			continue // it has its runner: nobody asks any more
		}
		rules, err := c.protection(ctx, j.Project.ID)
		switch {
		case errors.Is(err, ErrNotFound): // the project went away under us, and its jobs with it
			continue
		case err != nil:
			return err
		}
		j.Protected = rules.covers(j.Ref, j.RefIsTag)
	}
	return nil
}

func (p protection) covers(ref string, tag bool) bool {
	rules := p.branches
	if tag {
		rules = p.tags
	}
	for _, rule := range rules {
		if refMatches(rule, ref) {
			return true
		}
	}
	return false
}

// refMatches reports whether a rule covers a ref: by name, or by a pattern in which *
// stands for any text (doc/user/project/repository/branches/protected.md; names are
// compared with case).
func refMatches(rule, ref string) bool {
	first, rest, wild := strings.Cut(rule, "*")
	if !wild {
		return rule == ref
	}
	ref, ok := strings.CutPrefix(ref, first)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		at := strings.Index(ref, part)
		if at < 0 {
			return false
		}
		ref = ref[at+len(part):]
	}
	return strings.HasSuffix(ref, parts[len(parts)-1])
}

func (c *Client) protection(ctx context.Context, projectID int64) (protection, error) {
	if p, known := c.rules.get(projectID, c.now()); known {
		return p, nil
	}
	branches, err := c.protectedNames(ctx, projectID, "protected_branches") // doc/api/protected_branches.md
	if err != nil {
		return protection{}, err
	}
	tags, err := c.protectedNames(ctx, projectID, "protected_tags") // doc/api/protected_tags.md
	if err != nil {
		return protection{}, err
	}
	p := protection{branches, tags}
	c.rules.put(projectID, p, c.now())
	return p, nil
}

func (c *Client) protectedNames(ctx context.Context, projectID int64, list string) ([]string, error) {
	k := call{
		what: fmt.Sprintf("read the %s of project %d", strings.ReplaceAll(list, "_", " "), projectID), right: rightRules,
		method: http.MethodGet, path: fmt.Sprintf("api/v4/projects/%d/%s", projectID, list), query: url.Values{"per_page": {"100"}},
	}
	type rule struct {
		Name string `json:"name"`
	}
	var names []string
	err := readList(ctx, c, k, func(page []rule) error {
		if len(names)+len(page) > maxRules {
			return fmt.Errorf("%s: %w: more than %d rules", k.what, ErrTooMany, maxRules)
		}
		for _, r := range page {
			names = append(names, r.Name)
		}
		return nil
	})
	return names, err
}
