package gitlab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// errSchema: this GitLab's GraphQL API does not have what was asked for, or there is
// no GraphQL API at all. REST is used then.
var errSchema = errors.New("no such query in this GitLab's GraphQL API")

// pageInfo is how a GraphQL list goes on (doc/api/graphql, "Pagination").
type pageInfo struct {
	HasNextPage bool   `json:"hasNextPage"`
	EndCursor   string `json:"endCursor"`
}

// graphError is one error of an answer.
type graphError struct {
	Message    string `json:"message"`
	Extensions struct {
		Code string `json:"code"` // "undefinedField", "argumentNotAccepted", … where the query does not fit the schema
	} `json:"extensions"`
}

// unfit are the codes of the errors of static validation that mean an older or newer
// schema than ours: those of the gem graphql, which GitLab uses.
var unfit = []string{"undefinedField", "undefinedType", "argumentNotAccepted", "cannotSpreadFragment", "selectionMismatch", "variableMismatch"}

// graphql asks a query. Errors beside data are errors: data with holes is not whole.
func graphql[T any](ctx context.Context, c *Client, k call, query string, vars map[string]any) (T, error) {
	var data T
	body, err := json.Marshal(map[string]any{"query": query, "variables": vars})
	if err != nil {
		return data, fmt.Errorf("%s: %w", k.what, err)
	}
	k.method, k.path, k.body = http.MethodPost, "api/graphql", body
	err = c.page(ctx, k, func(a answer) error {
		var answered struct {
			Data   *T           `json:"data"`
			Errors []graphError `json:"errors"`
		}
		if err := a.decode(&answered); err != nil {
			return err
		}
		if err := a.graphFailure(answered.Errors); err != nil {
			return err
		}
		if answered.Data == nil {
			return fmt.Errorf("%w: no data", ErrProtocol)
		}
		data = *answered.Data
		return nil
	})
	if errors.Is(err, ErrNotFound) { // the whole of /api/graphql: a proxy that lets only /api/v4 through
		err = fmt.Errorf("%w: %w", errSchema, err)
	}
	return data, err
}

func (a answer) graphFailure(errs []graphError) error {
	if len(errs) == 0 {
		return nil
	}
	first := errs[0]
	message := a.quote(first.Message)
	for _, code := range unfit {
		if first.Extensions.Code == code {
			return fmt.Errorf("%w (%s)", errSchema, message)
		}
	}
	lower := strings.ToLower(message)
	switch {
	case strings.Contains(lower, "timeout"), strings.Contains(lower, "timed out"), strings.Contains(lower, "internal server error"):
		return fmt.Errorf("%w: %s", ErrUnavailable, message)
	case strings.Contains(lower, "doesn't exist on type"), strings.Contains(lower, "doesn't accept argument"):
		return fmt.Errorf("%w (%s)", errSchema, message)
	case strings.Contains(lower, "permission to perform this action"):
		// Gitlab::Graphql::Authorize::AuthorizeResource says the same for "is not there".
		return fmt.Errorf("%w: %s", ErrForbidden, message)
	default:
		return fmt.Errorf("%w: %s", ErrProtocol, message)
	}
}

// graphPages follows the cursors of a list. ask reads one page and says how it goes on.
func (c *Client) graphPages(what string, ask func(after any) (pageInfo, error)) error {
	var after any
	for page := 1; ; page++ {
		info, err := ask(after)
		switch {
		case err != nil:
			return err
		case !info.HasNextPage:
			return nil
		case page == c.pages:
			return fmt.Errorf("%s: %w: more than %d pages", what, ErrTooMany, c.pages)
		case info.EndCursor == "" || info.EndCursor == after:
			return fmt.Errorf("%s: %w: a page has no next one and says that it has", what, ErrProtocol)
		}
		after = info.EndCursor
	}
}
