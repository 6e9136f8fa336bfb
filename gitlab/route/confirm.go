package route

import "time"

// ConfirmWithin is how long a machine that was handed a job has to say that it has it,
// where that passes through us. GitLab waits for the same word for two minutes from
// before the job was booked (Gitlab::Ci::Build::RunnerAckQueue), and refuses a later
// one: a job that was not confirmed until then did not arrive, or is not the machine's
// any more. Not longer, since a machine that a job did not reach is kept for as long.
const ConfirmWithin = 3 * time.Minute
