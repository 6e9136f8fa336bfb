package migstub

import (
	"context"
	"slices"
	"time"
)

// waitLimit is how long wait waits for an operation (zoneOperations.wait).
const waitLimit = 2 * time.Minute

// waiting is an answer that comes when the operation is done.
type waiting struct{ op *operation }

var operationHandlers = map[string]handler{
	"get": func(c *Cloud, r *request) (any, *apiError) {
		op, err := c.operationOf(r)
		if err != nil {
			return nil, err
		}
		return c.renderOperation(r.now, op), nil
	},
	// On a virtual clock it does not wait, which it need not ("might return after zero
	// seconds", zoneOperations.wait).
	"wait": func(c *Cloud, r *request) (any, *apiError) {
		op, err := c.operationOf(r)
		if err != nil {
			return nil, err
		}
		if c.virtual || op.done {
			return c.renderOperation(r.now, op), nil
		}
		return &waiting{op}, nil
	},
	"list": func(c *Cloud, r *request) (any, *apiError) {
		all := c.operationResources(r.now, func(op *operation) bool { return r.here(op.zone, op.region) })
		return listOf(c, r, "compute#operationList", "operations", all)
	},
	"aggregatedList": func(c *Cloud, r *request) (any, *apiError) {
		return aggregate(c, r, "compute#operationAggregatedList", "operations", c.operationResources(r.now, func(*operation) bool { return true }),
			func(o operationResource) string { return placeIn(o.Zone, o.Region) })
	},
}

func (c *Cloud) operationResources(now time.Time, in func(*operation) bool) (all []operationResource) {
	for _, op := range c.operations.all {
		if in(op) {
			all = append(all, c.renderOperation(now, op))
		}
	}
	return all
}

// operationOf is the operation that a path names, by name or id.
func (c *Cloud) operationOf(r *request) (*operation, *apiError) {
	name := r.names["operation"]
	for _, op := range slices.Backward(c.operations.all) {
		if r.here(op.zone, op.region) && (op.name == name || idText(op.id) == name) {
			return op, nil
		}
	}
	return nil, notFound(c.path(place(r.names["zone"], r.names["region"]) + "/operations/" + name))
}

// accept makes the operation of a write happen, or finds the one that the same
// request made before, and shows it.
func (c *Cloud) accept(r *request, op *operation) any {
	op.requestID = r.query.Get("requestId")
	if op.requestID != "" {
		if first := c.operations.byRequest[requestKey{op.requestID, op.kind, op.target}]; first != nil {
			return c.renderOperation(r.now, first)
		}
	}
	op.plannedFail = r.fail
	c.insert(r.now, op)
	return c.renderOperation(r.now, op)
}

// wait waits until the operation is done, the limit is over or the caller has
// gone.
func (c *Cloud) wait(ctx context.Context, w *waiting) operationResource {
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	done := time.NewTimer(time.Until(w.op.doneAt)) // doneAt never changes
	defer done.Stop()
	select {
	case <-done.C:
	case <-limit.C:
	case <-ctx.Done():
	}
	var r operationResource
	c.do(func(now time.Time) { r = c.renderOperation(now, w.op) })
	return r
}
