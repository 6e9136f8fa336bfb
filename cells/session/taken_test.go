package session_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway/store"
)

// racing is a store where somebody else writes between what one reads and what one writes
// because of it.
type racing struct {
	*store.Store
	between func(kind string)
}

func (r racing) Settings(ctx context.Context, kind string) (map[string][]byte, error) {
	kept, err := r.Store.Settings(ctx, kind)
	r.between(kind)
	return kept, err
}

// An origin has linked to another replica between what this one has read and what it
// writes: the older link does not take that one's place.
func TestAnOlderLinkDoesNotTakeThePlaceOfANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const newer = `{"replica":"b-2","epoch":7,"count":1}`
		s := openStore(t)
		var once sync.Once
		p := startPeerOver(t, s, racing{s, func(kind string) {
			if kind == "cells-link" {
				once.Do(func() {
					if err := s.PutSetting(t.Context(), kind, "a", []byte(newer)); err != nil {
						t.Error(err)
					}
				})
			}
		}}, "b-1", nil)
		l := p.dial()
		l.hello(5)
		err := l.refused()
		require.Equal(t, codes.Aborted, status.Code(err), "%v", err)
		kept, err := s.Settings(t.Context(), "cells-link")
		require.NoError(t, err)
		require.JSONEq(t, newer, string(kept["a"]))
	})
}

// Somebody writes each time: that has an end, and the origin tries again.
func TestALinkThatOthersWriteOverIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		n := 0
		p := startPeerOver(t, s, racing{s, func(kind string) {
			if kind == "cells-link" {
				n++
				other := []byte(`{"replica":"b-2","epoch":1,"count":` + string(rune('0'+n%10)) + `}`)
				if err := s.PutSetting(context.WithoutCancel(t.Context()), kind, "a", other); err != nil {
					t.Error(err)
				}
			}
		}}, "b-1", nil)
		l := p.dial()
		l.hello(5)
		err := l.refused()
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "try again")
	})
}
