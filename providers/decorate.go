package providers

// Decorate puts in front of base what every group has, in this order, outermost
// first. The order matters:
//
//  1. observation: what is counted is what was really asked, and an answer that
//     was refused counts as the error that it is;
//  2. paging: each page is checked and has a deadline of its own;
//  3. validation: nothing further out sees an answer that wasn't checked;
//  4. deadline: innermost, so that waiting for a restart counts too.
func Decorate(base Calls, who CallInfo, t Timing, o Observer) Calls {
	t, o = t.withDefaults(), o.withDefaults()
	calls := base
	calls = &deadline{next: calls, timing: t}
	calls = &validation{next: calls, group: who.Group}
	calls = &paging{next: calls}
	return &observation{next: calls, who: who, observer: o}
}
