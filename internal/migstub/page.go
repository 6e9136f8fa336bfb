package migstub

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// maxPage is the most that a page of a list holds [entries] (maxResults).
const maxPage = 500

// listed is a resource in a list.
type listed interface {
	key() (name, createdAt string)
}

// page is the part of all that a request asks for, and the token of the next.
func page[T listed](c *Cloud, r *request, all []T) ([]T, string, *apiError) {
	all, err := filtered(all, r.query.Get("filter"))
	if err != nil {
		return nil, "", err
	}
	if err := order(all, r.query.Get("orderBy")); err != nil {
		return nil, "", err
	}
	return cut(c, r, all)
}

// order sorts by name; the only other order is by creation, the newest first
// (orderBy).
func order[T listed](all []T, by string) *apiError {
	switch by {
	case "", "name":
		slices.SortStableFunc(all, func(a, b T) int {
			x, _ := a.key()
			y, _ := b.key()
			return cmp.Compare(x, y)
		})
	case "creationTimestamp desc":
		slices.SortStableFunc(all, func(a, b T) int {
			_, x := a.key()
			_, y := b.key()
			return cmp.Compare(y, x)
		})
	default:
		return invalid("Invalid value for field 'orderBy': '%.100s'.", by)
	}
	return nil
}

// cut is the page of a list that begins at the request's token.
func cut[T any](c *Cloud, r *request, all []T) ([]T, string, *apiError) {
	size := maxPage
	if n, err := strconv.Atoi(r.query.Get("maxResults")); err == nil && n > maxPage {
		return nil, "", invalid("Invalid value for field 'maxResults': '%d'. Values are 0 to %d, inclusive.", n, maxPage)
	} else if err == nil && n > 0 {
		size = n
	}
	if c.faults.PageSize > 0 {
		size = min(size, c.faults.PageSize)
	}
	list := strings.Join([]string{r.method.ID, r.names["zone"], r.names["region"], r.names["instanceGroupManager"], r.query.Get("filter")}, " ")
	from := 0
	if token := r.query.Get("pageToken"); token != "" {
		var ok bool
		if from, ok = readToken(token, list); !ok {
			return nil, "", invalid("Invalid value for field 'pageToken': '%.100s'.", token)
		}
	}
	from = min(from, len(all))
	to := min(from+size, len(all))
	if to == len(all) {
		return all[from:], "", nil
	}
	return all[from:to], writeToken(to, list), nil
}

// A token belongs to one list: nobody may use it for another.
func writeToken(from int, list string) string {
	return base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(from) + " " + list))
}

func readToken(token, list string) (from int, ok bool) {
	text, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return 0, false
	}
	number, of, _ := strings.Cut(string(text), " ")
	from, err = strconv.Atoi(number)
	return from, err == nil && of == list
}
