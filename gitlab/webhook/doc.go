// Package webhook receives GitLab's Job Hook: one request for each change of a job's
// status (doc/user/project/integrations/webhook_events.md, "Job events").
//
// Hooks are a hurry-up and never the truth. They are lost, repeated, late and out of
// order, and say neither a job's tags nor the machine that runs it; the lists of the
// API are the truth. So this package promises little and keeps it: who does not know
// the secret is not heard, a repeated hook is heard once, a hook that is older than one
// heard of the same job is dropped, and a hook that could not be passed on is answered
// with 503, which GitLab shows as failed and can repeat. What it remembers is bounded
// and of this process; other replicas have their own memory.
package webhook
