package gitlab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Limits on how a list is read.
const (
	// PageSize is the number of entries of a page, GitLab's maximum (doc/api/rest,
	// "Pagination"; doc/api/graphql, "Limits").
	PageSize = 100
	// MaxPages bounds one list [pages]: half a million entries.
	MaxPages = 5_000
	// maxPageEntries bounds what an answer may have of a list [entries]: who was asked for
	// PageSize and sends all at once may have as many as the longest list that we read whole.
	maxPageEntries = maxManagers
	// pageTries is how often a page of a list is asked for [times].
	pageTries = 3
	// pagePatience is how long a list waits when GitLab asks it to [time]; a longer wait is
	// the caller's.
	pagePatience = time.Minute
)

// api makes a call with the API token, in its turn, and hands a good answer to read.
func (c *Client) api(ctx context.Context, k call, read func(answer) error) error {
	if err := c.turn(ctx); err != nil {
		return fmt.Errorf("%s: %w", k.what, err)
	}
	token, err := c.apiToken()
	if err != nil {
		return fmt.Errorf("%s: %w", k.what, err)
	}
	k.header = http.Header{"Authorization": {"Bearer " + token}} // doc/api/rest/authentication.md: as good as PRIVATE-TOKEN
	k.secrets = append(k.secrets, token)
	return c.send(ctx, k, callTimeout, func(a answer) error {
		if a.status != http.StatusOK {
			return c.refused(k, a)
		}
		if err := a.isJSON(); err != nil {
			return err
		}
		return read(a)
	})
}

// turn waits until the budget allows a call.
func (c *Client) turn(ctx context.Context) error {
	patience := maxBudgetWait
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	d, err := c.budget.turn(c.now(), patience)
	if err != nil {
		return err
	}
	if ctx.Err() != nil || (d > 0 && !c.wait(ctx.Done(), d)) {
		return cause(ctx)
	}
	return nil
}

// isJSON refuses what is not JSON by its own word: a login page, a proxy's error page.
func (a answer) isJSON() error {
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	switch {
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		return nil
	case kind == "text/html":
		return fmt.Errorf("%w: it is a web page: is gitlab.url the address of a GitLab, and does no login page or proxy stand before it?", ErrProtocol)
	default:
		return fmt.Errorf("%w: it is %q and not JSON", ErrProtocol, a.quote(a.header.Get("Content-Type")))
	}
}

// texts are buffers for answers: a list has a thousand of some 50 kB, one after the other.
var texts = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKeptText bounds a buffer that is used again [bytes].
const maxKeptText = 1 << 20

// decode reads one JSON value and nothing after it.
func (a answer) decode(v any) error {
	text := texts.Get().(*bytes.Buffer)
	defer func() {
		if text.Cap() <= maxKeptText {
			text.Reset()
			texts.Put(text)
		}
	}()
	if _, err := text.ReadFrom(a.body); err != nil {
		return err
	}
	err := json.Unmarshal(text.Bytes(), v)
	switch {
	case err == nil:
		return nil
	case moreThanOne(text):
		return fmt.Errorf("%w: something follows the JSON", ErrProtocol)
	default:
		return a.broken(err)
	}
}

// moreThanOne reports whether a text begins with a JSON value and goes on.
func moreThanOne(text io.Reader) bool {
	dec := json.NewDecoder(text)
	return dec.Decode(new(json.RawMessage)) == nil && dec.More()
}

// broken names what stopped a JSON decoder: the connection, or the JSON. The decoder's
// own text is left out where it would quote the answer.
func (a answer) broken(err error) error {
	if a.body.err != nil {
		return a.body.err
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("%w: %q is a JSON %s there", ErrProtocol, a.quote(kind.Field), kind.Value)
	}
	return fmt.Errorf("%w: it is not whole or not JSON", ErrProtocol)
}

// refused is the error for an answer that is not 200.
func (c *Client) refused(k call, a answer) error {
	message, scope := a.message()
	switch status := a.status; {
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: it is wrong, expired or revoked (gitlab.api_token)", ErrUnauthorized)
	case status == http.StatusForbidden && scope:
		return fmt.Errorf("%w: it needs the scope read_api", ErrForbidden)
	case status == http.StatusForbidden:
		return fmt.Errorf("%w: %s (GitLab: %s)", ErrForbidden, k.right, message)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w (GitLab: %s)", ErrNotFound, message)
	case status == http.StatusTooManyRequests:
		after, _ := retryAfter(a.header, c.now())
		c.budget.told(c.now(), after)
		return &Limited{RetryAfter: after}
	case status == http.StatusRequestTimeout || status >= 500:
		return fmt.Errorf("%w: status %d", ErrUnavailable, status)
	case status >= 300 && status < 400:
		return fmt.Errorf("%w: it redirects to %s: set gitlab.url to where GitLab really is", ErrProtocol, a.redirectHost())
	default:
		return fmt.Errorf("%w: status %d (%s)", ErrProtocol, status, message)
	}
}

func (a answer) redirectHost() string {
	u, err := url.Parse(a.header.Get("Location"))
	if err != nil || u.Host == "" {
		return "another path"
	}
	return a.quote(u.Scheme + "://" + u.Host)
}

// message is what GitLab says in an error, and whether that is a missing scope of the
// token. The three shapes: {"message":…} of the API, {"error":…,"error_description":…}
// of OAuth (lib/api/api_guard.rb), {"errors":[{"message":…}]} of GraphQL.
func (a answer) message() (text string, scope bool) {
	a.body.left = min(a.body.left, maxErrorBytes)
	a.body.limit = a.body.left
	data, err := a.body.all()
	if err != nil {
		return http.StatusText(a.status), false
	}
	var said struct {
		Message     json.RawMessage            `json:"message"`
		Error       string                     `json:"error"`
		Description string                     `json:"error_description"`
		Errors      []struct{ Message string } `json:"errors"`
	}
	if json.Unmarshal(data, &said) != nil {
		return http.StatusText(a.status), false
	}
	text = strings.Trim(string(said.Message), `"`)
	switch {
	case text != "" && text != "null":
	case said.Description != "":
		text = said.Description
	case said.Error != "":
		text = said.Error
	case len(said.Errors) > 0:
		text = said.Errors[0].Message
	default:
		text = http.StatusText(a.status)
	}
	return a.quote(text), said.Error == "insufficient_scope"
}

// page is api for one page of a list: what passes quickly is waited for, since a list of
// a thousand pages would otherwise hardly ever be whole. read must be able to begin anew.
func (c *Client) page(ctx context.Context, k call, read func(answer) error) error {
	for try := 1; ; try++ {
		err := c.api(ctx, k, read)
		var limited *Limited
		var wait time.Duration
		switch {
		case err == nil:
			return nil
		case errors.As(err, &limited):
			wait = limited.RetryAfter
		case errors.Is(err, ErrUnavailable):
			wait = time.Duration(try) * time.Second
		default:
			return err
		}
		deadline, bounded := ctx.Deadline()
		if try == pageTries || wait > pagePatience || ctx.Err() != nil || (bounded && time.Until(deadline) < wait) {
			return err
		}
		if !c.wait(ctx.Done(), wait) {
			return fmt.Errorf("%s: %w", k.what, cause(ctx))
		}
	}
}

// readList reads a REST list to its end and hands it on page by page, each once and
// whole: one that broke off is read again. take keeps nothing of the page's memory, which
// the next one uses again. GitLab names the next page in the Link header, whatever the
// kind of pagination (doc/api/rest, "Pagination").
func readList[T any](ctx context.Context, c *Client, k call, take func(page []T) error) error {
	query := k.query
	var read []T
	for page := 1; ; page++ {
		k.query = query
		var next url.Values
		var more bool
		err := c.page(ctx, k, func(a answer) (err error) {
			if next, more, err = nextPage(a.header); err != nil {
				return err
			}
			read, err = entries(a, read[:0])
			return err
		})
		if err == nil {
			err = take(read)
		}
		switch {
		case err != nil:
			return err
		case !more:
			return nil
		case page == c.pages:
			return fmt.Errorf("%s: %w: more than %d pages", k.what, ErrTooMany, c.pages)
		case next.Encode() == query.Encode():
			return fmt.Errorf("%s: %w: a page names itself as the next", k.what, ErrProtocol)
		}
		query = next
	}
}

// entries reads a page of a list into page.
func entries[T any](a answer, page []T) ([]T, error) {
	err := elements(a, func(v *T) error {
		if len(page) == maxPageEntries {
			return fmt.Errorf("%w: more than %d entries in a page", ErrTooMany, maxPageEntries)
		}
		page = append(page, *v)
		return nil
	})
	return page, err
}

// nextPage is the query of the next page, and whether there is one. Only the query is
// taken: a GitLab behind a proxy may think that it has another address, and the token
// goes to ours only.
func nextPage(h http.Header) (query url.Values, more bool, err error) {
	for _, line := range h.Values("Link") {
		for {
			_, rest, found := strings.Cut(line, "<")
			target, rest, closed := strings.Cut(rest, ">")
			if !found || !closed {
				break
			}
			params, after, _ := strings.Cut(rest, ",")
			line = after
			if !isNext(params) {
				continue
			}
			u, err := url.Parse(target)
			if err != nil || u.RawQuery == "" {
				return nil, false, fmt.Errorf("%w: the next page has no address", ErrProtocol)
			}
			query, err := url.ParseQuery(u.RawQuery)
			if err != nil {
				return nil, false, fmt.Errorf("%w: the next page has no address", ErrProtocol)
			}
			return query, true, nil
		}
	}
	return nil, false, nil
}

func isNext(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		if p = strings.TrimSpace(p); p == `rel="next"` || p == "rel=next" {
			return true
		}
	}
	return false
}

// elements decodes a JSON array one element at a time: of a page of a megabyte, what is
// kept of one job is in memory, not the page.
func elements[T any](a answer, each func(*T) error) error {
	dec := json.NewDecoder(a.body)
	open, err := dec.Token()
	if err != nil {
		return a.broken(err)
	}
	if open != json.Delim('[') {
		return fmt.Errorf("%w: it is not a list", ErrProtocol)
	}
	for dec.More() {
		var v T
		if err := dec.Decode(&v); err != nil {
			return a.broken(err)
		}
		if err := each(&v); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return a.broken(err)
	}
	return a.body.err
}
