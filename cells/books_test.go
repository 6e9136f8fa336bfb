package cells_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	"github.com/spillway-ci/spillway/router"
)

var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const minute = time.Minute

// linkedBook is the book of an origin on a peer that offers four places.
func linkedBook() (o *cells.Outbound, pool string) {
	o = cells.NewOutbound(cells.Terms{Peer: "b", CostFactor: 1, MaxJobs: 3, StartWithin: 5 * minute}, minute)
	o.Link(2 * minute)
	o.SetOffers([]cells.Offer{offered})
	o.Beat(1)
	return o, poolOf("b")
}

func ref(n int) cells.Ref { return cells.Ref{ID: spillway.JobID(fmt.Sprint(n)), Attempt: 1} }

func hand(t *testing.T, o *cells.Outbound, now time.Time, n int) {
	t.Helper()
	require.True(t, o.Take(now, ref(n), "class", poolOf("b")))
	send, steps := o.Kept(now, ref(n), o.Newest(), true)
	require.True(t, send)
	require.Empty(t, steps)
}

func deeds(steps []cells.Step) (list []cells.Deed) {
	for _, s := range steps {
		list = append(list, s.Do)
	}
	return list
}

func TestPlacesAreThoseOfTheOfferAndOfTheTerms(t *testing.T) {
	o, pool := linkedBook()
	require.Equal(t, 3, o.Free(dawn, pool), "max_jobs")
	for n := range 3 {
		hand(t, o, dawn, n)
	}
	require.Zero(t, o.Free(dawn, pool))
	require.False(t, o.Take(dawn, ref(9), "class", pool))
	require.Zero(t, o.Free(dawn, "another"))
	o.Unlink()
	require.Zero(t, o.Free(dawn.Add(time.Hour), pool))
	o.Link(2 * minute)
	require.Zero(t, o.Free(dawn, pool), "nothing before the first beat: there would be nothing to name")
}

func TestAJobIsSentOnlyWhenItIsKeptUnderTheSameLink(t *testing.T) {
	o, pool := linkedBook()
	require.True(t, o.Take(dawn, ref(1), "class", pool))
	mark := o.Newest()
	o.Unlink()
	o.Link(2 * minute)
	o.Beat(5)
	send, steps := o.Kept(dawn, ref(1), mark, true)
	require.False(t, send)
	require.Equal(t, []cells.Deed{cells.Refuse}, deeds(steps))

	require.True(t, o.Take(dawn, ref(2), "class", pool))
	send, steps = o.Kept(dawn, ref(2), o.Newest(), false)
	require.False(t, send)
	require.Equal(t, []cells.Deed{cells.Refuse}, deeds(steps))

	require.True(t, o.Take(dawn, ref(3), "class", pool))
	require.Equal(t, []cells.Deed{cells.Withdraw}, deeds(o.Unwanted(ref(3))))
	send, steps = o.Kept(dawn, ref(3), o.Newest(), true)
	require.False(t, send)
	require.Empty(t, steps)
}

func TestWhatIsHandedOverBetweenBeatAndAnswerIsNamedAndNotCovered(t *testing.T) {
	o, pool := linkedBook()
	hand(t, o, dawn, 1)
	mark, claims := o.Beat(2)
	require.Equal(t, []router.JobRef{{ID: "1", Class: "class", Attempt: 1}}, claims)
	require.True(t, o.Take(dawn, ref(2), "class", pool))
	_, _ = o.Kept(dawn, ref(2), cells.Mark{Beat: 1}, true) // of no link that there is
	hand(t, o, dawn, 3)
	covered, also, ok := o.Renewed(dawn, mark, claims, nil)
	require.True(t, ok)
	require.Equal(t, []cells.Ref{ref(1)}, covered)
	require.Equal(t, []cells.Ref{ref(3)}, also)
}

func TestAClaimThatIsNotOursIsNotNamed(t *testing.T) {
	o, _ := linkedBook()
	hand(t, o, dawn, 1)
	mark, claims := o.Beat(2)
	covered, also, ok := o.Renewed(dawn, mark, nil, claims)
	require.True(t, ok)
	require.Empty(t, covered)
	require.Empty(t, also)
}

func TestAJobIsLostWhenItsClaimWouldBeOver(t *testing.T) {
	o, _ := linkedBook()
	hand(t, o, dawn, 1)
	require.Equal(t, []cells.Deed{cells.Accept}, deeds(o.Heard(dawn, ref(1), cells.WordTaken, "")))
	o.Unlink()
	over := dawn.Add(o.GiveBack())
	require.Empty(t, o.Tick(over))
	require.Equal(t, []cells.Deed{cells.Lose}, deeds(o.Tick(over.Add(time.Millisecond))))
	require.Equal(t, []cells.Deed{cells.Confirm}, deeds(o.Heard(over, ref(1), cells.WordLost, "")), "whatever comes later is only confirmed")
}

func TestOriginAnswersForAJobOfWhichNothingIsHeard(t *testing.T) {
	o, _ := linkedBook()
	hand(t, o, dawn, 1)
	o.Unlink()
	require.Empty(t, o.Tick(dawn.Add(9*time.Second)))
	require.Equal(t, []cells.Deed{cells.Accept}, deeds(o.Tick(dawn.Add(10*time.Second))))
	require.Empty(t, o.Tick(dawn.Add(11*time.Second)))
}

func TestAJobThatDoesNotBeginIsAskedBack(t *testing.T) {
	o, pool := linkedBook()
	hand(t, o, dawn, 1)
	o.Heard(dawn, ref(1), cells.WordTaken, "")
	late := dawn.Add(2 * minute)
	o.Renewed(late, mustBeat(o), []router.JobRef{{ID: "1", Class: "class", Attempt: 1}}, nil)
	late = dawn.Add(5 * minute)
	require.Equal(t, []cells.Deed{cells.AskBack}, deeds(o.Tick(late)))
	require.Empty(t, o.Tick(late.Add(time.Second)))
	require.Equal(t, []cells.Deed{cells.Refuse, cells.Confirm}, deeds(o.Heard(late, ref(1), cells.WordRefused, "")))
	require.Zero(t, o.Free(late, pool), "for a moment nothing more goes there")
	require.Positive(t, o.Free(late.Add(5*time.Second), pool))
}

func mustBeat(o *cells.Outbound) cells.Mark {
	mark, _ := o.Beat(o.Newest().Beat + 1)
	return mark
}

func TestAnEndIsSaidUntilItIsStored(t *testing.T) {
	o, pool := linkedBook()
	hand(t, o, dawn, 1)
	require.Equal(t, []cells.Deed{cells.Accept, cells.Finish}, deeds(o.Heard(dawn, ref(1), cells.WordEnded, "")))
	carried, ended := o.Carried(pool)
	require.Equal(t, []cells.Ref{ref(1)}, carried)
	require.Equal(t, carried, ended)
	require.Empty(t, o.Tick(dawn.Add(time.Hour)), "an end is never lost")
	require.Equal(t, []cells.Deed{cells.Confirm}, deeds(o.Stored(ref(1))))
	require.Zero(t, o.Jobs(""))
}

// newInbound is a peer's book that has sent beat 1 at dawn.
func newInbound() *cells.Inbound {
	b := cells.NewInbound(cells.Timing{Lease: minute, EndWithin: 2 * minute})
	b.Link(minute)
	b.Beat(dawn)
	return b
}

func TestAJobIsCoveredFromTheSendingOfTheBeat(t *testing.T) {
	b := newInbound()
	late := dawn.Add(59 * time.Second)
	require.Equal(t, cells.Push, b.Spill(late, ref(1), 1))
	require.False(t, b.Pushed(late, ref(1), true))
	require.Empty(t, b.Tick(late))
	require.Equal(t, []cells.Ref{ref(1)}, b.Tick(dawn.Add(minute)), "however late the word came")
	require.Equal(t, cells.TooLate, b.Spill(dawn.Add(minute), ref(2), 1))
	require.Equal(t, cells.TooLate, b.Spill(dawn, ref(2), 2), "a beat that was never sent")
	require.Equal(t, cells.Again, b.Spill(dawn.Add(time.Hour), ref(1), 1), "what is here is not refused")
}

func TestAnswersToBeatsOfAnotherLinkCoverNothing(t *testing.T) {
	b := newInbound()
	require.Equal(t, cells.Push, b.Spill(dawn, ref(1), 1))
	b.Pushed(dawn, ref(1), true)
	b.Link(minute)
	unknown, end := b.Renew(1, []cells.Ref{ref(1), ref(2)}, nil)
	require.Equal(t, []cells.Ref{ref(2)}, unknown)
	require.Empty(t, end)
	require.Equal(t, []cells.Ref{ref(1)}, b.Tick(dawn.Add(minute)))
}

func TestOldBeatsAreForgotten(t *testing.T) {
	b := newInbound()
	for i := range 64 {
		b.Beat(dawn.Add(time.Duration(i) * time.Millisecond))
	}
	require.Equal(t, cells.TooLate, b.Spill(dawn, ref(1), 1))
	require.Equal(t, cells.Push, b.Spill(dawn, ref(1), 2))
}

func TestWhatIsNotNamedEnds(t *testing.T) {
	b := newInbound()
	for n := range 3 {
		require.Equal(t, cells.Push, b.Spill(dawn, ref(n), 1))
	}
	b.Pushed(dawn, ref(0), true)
	b.Pushed(dawn, ref(1), true)
	_, end := b.Renew(1, nil, []cells.Ref{ref(0)})
	require.Equal(t, []cells.Ref{ref(1)}, end)
	require.True(t, b.Pushed(dawn, ref(2), true), "it ends as soon as it is there")
	_, toEnd := b.Open()
	require.Equal(t, []cells.Ref{ref(1), ref(2)}, toEnd)
	require.True(t, b.Seen(ref(1), cells.WordLost))
	require.False(t, b.Seen(ref(1), cells.WordEnded), "the first end counts")
	require.False(t, b.Confirmed(ref(2)), "only what has ended can be confirmed")
	require.True(t, b.Confirmed(ref(1)))
}

func TestWhatWasTakenInAnEarlierLifeIsHardlyCovered(t *testing.T) {
	b := cells.NewInbound(cells.Timing{Lease: minute, EndWithin: 2 * minute})
	b.Inherit(dawn, []cells.Ref{ref(1)})
	require.Empty(t, b.Tick(dawn.Add(14*time.Second)))
	require.Equal(t, []cells.Ref{ref(1)}, b.Tick(dawn.Add(15*time.Second)))
}

func TestAnOriginHasSoManyJobsHere(t *testing.T) {
	b := newInbound()
	for n := range cells.MaxHeld {
		require.Equal(t, cells.Push, b.Spill(dawn, ref(n), 1))
	}
	require.Equal(t, cells.TooMany, b.Spill(dawn, ref(cells.MaxHeld), 1))
	b.Pushed(dawn, ref(0), false)
	require.Equal(t, cells.Push, b.Spill(dawn, ref(cells.MaxHeld), 1))
}
