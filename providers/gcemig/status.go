package gcemig

import (
	"context"
	"errors"

	"cloud.google.com/go/compute/apiv1/computepb"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// Status implements pluginsdk.Provider. It costs one list for each zone or region
// that is asked for, and one more call for each group that may have something to
// complain about, at most maxErrorReads.
func (p *Provider) Status(ctx context.Context, ids []string) ([]pluginsdk.GroupStatus, error) {
	if err := pluginsdk.CheckGroups(ids); err != nil {
		return nil, err
	}
	s, err := p.configured.Get()
	if err != nil {
		return nil, err
	}
	found, errs := s.readGroups(ctx, ids)
	statuses := make([]pluginsdk.GroupStatus, len(ids))
	read := 0
	for i, id := range ids {
		g := s.groups[id]
		switch {
		case g == nil:
			statuses[i] = pluginsdk.GroupStatus{Group: id, Err: errNotFound(id)}
		case errs[g.scope] != nil:
			statuses[i] = pluginsdk.GroupStatus{Group: id, Err: errs[g.scope]}
		default:
			statuses[i] = s.status(g, found[g])
			read++
		}
	}
	if read == 0 && len(errs) > 0 { // nothing at all was told
		return nil, anyOf(errs)
	}
	s.readFailures(ctx, found)
	for i, id := range ids {
		if statuses[i].Err == nil {
			statuses[i].Failures = s.groups[id].recentFailures(s.now())
		}
	}
	return statuses, nil
}

// readGroups lists the scopes of the groups, once each. A group that is not there is
// not in found; a scope that could not be read has an error.
func (s *session) readGroups(ctx context.Context, ids []string) (found map[*group]*computepb.InstanceGroupManager, errs map[scope]error) {
	wanted := make(map[scope]map[string]*group, len(s.scopes))
	for _, id := range ids {
		if g := s.groups[id]; g != nil {
			if wanted[g.scope] == nil {
				wanted[g.scope] = make(map[string]*group)
			}
			wanted[g.scope][g.name] = g
		}
	}
	found, errs = make(map[*group]*computepb.InstanceGroupManager, len(ids)), make(map[scope]error)
	for _, in := range s.scopes {
		if wanted[in] == nil {
			continue
		}
		list, err := in.groups(ctx)
		if err != nil {
			errs[in] = noGroupError(err)
			continue
		}
		for _, igm := range list {
			if g := wanted[in][igm.GetName()]; g != nil {
				found[g] = igm
			}
		}
	}
	return found, errs
}

// noGroupError takes the meaning "no such group" from the error of a list: what is
// not there is the zone, the region or the project.
func noGroupError(err error) error {
	var e *pluginsdk.Error
	if errors.As(err, &e) && e.Kind == pluginsdk.KindNotFound {
		return &pluginsdk.Error{Kind: pluginsdk.KindInvalid, Message: e.Message, Cause: err}
	}
	return err
}

func anyOf(errs map[scope]error) error {
	for _, err := range errs {
		return err
	}
	return nil
}

// status is the group in Spillway's words; igm is nil if there is none.
//
// A managed instance group has no bounds of its own, so that its min is 0 and its max
// what Google allows; one whose limit Google has raised is at least as large as it
// is. That it is not stable is told and stops nothing: a group that can't get all that
// was asked for never is.
func (s *session) status(g *group, igm *computepb.InstanceGroupManager) pluginsdk.GroupStatus {
	if igm == nil {
		return pluginsdk.GroupStatus{Group: g.id, Err: errNotFound(g.id)}
	}
	g.saw(igm, s.now())
	target := int(igm.GetTargetSize())
	status := pluginsdk.GroupStatus{
		Group:        g.id,
		Desired:      target,
		Max:          max(g.maxSize(igm), target),
		InTransition: !igm.GetStatus().GetIsStable(),
	}
	if err := s.foreign(g, igm); err != nil {
		status.LaunchHalt, status.RemovalHalt = err.Message, err.Message
	}
	return status
}
