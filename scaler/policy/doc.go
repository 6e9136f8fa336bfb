// Package policy decides how many instances a pool shall have.
//
// [Decide] is a fixed pipeline of small named steps, each with a before, an
// after and a sentence. It is a core: all that it needs is in its arguments, the
// answer is a value. Which instance goes is scaler/roster's question; making it
// so is scaler's.
//
// What it promises, whatever it is given: no launch makes what bills exceed our
// maximum or the group's (I2); what boots or was asked for is never asked for
// again (I3); attributed jobs and room for them are a launch, from zero too, or
// the trace says what blocks it (I4); what is not known whole never scales in
// (I5); what isn't proven idle is never removed (I1).
package policy
