package providers

// Decorate puts in front of base what every group has, in this order, outermost
// first. The order matters:
//
//  1. observation: what is counted is what was really asked, and an answer that
//     was refused counts as the error that it is;
//  2. paging: each page is checked and has a deadline of its own;
//  3. validation: nothing further out sees an answer that wasn't checked;
//  4. deadline: so that waiting for a restart, and to repeat, counts too: whoever
//     waits does so once, however many attempts are made.
//
// Repeating stands further in than all of them, in front of the plugin ([Plugin]'s
// reads), because base is where the pools of a plugin meet: of the Status that a
// thousand of them share, one refusal would become a thousand repetitions out here,
// each with a jitter of its own and so a call of its own. It comes after the deadline,
// so that no attempt begins that can't end in time, and after validation, since an
// answer that breaks the contract would do so again.
func Decorate(base Calls, who CallInfo, t Timing, o Observer) Calls {
	t, o = t.withDefaults(), o.withDefaults()
	calls := base
	calls = &deadline{next: calls, timing: t}
	calls = &validation{next: calls, group: who.Group}
	calls = &paging{next: calls}
	return &observation{next: calls, who: who, observer: o}
}
