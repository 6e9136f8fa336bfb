package shell

import "io"

// tail keeps the last limit bytes written to it.
type tail struct {
	limit   int
	kept    []byte // between limit and 2·limit bytes once full, so that writes are cheap
	dropped int64
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	written := len(p)
	if over := len(p) - t.limit; over > 0 {
		t.dropped += int64(over)
		p = p[over:]
	}
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*t.limit {
		t.trim()
	}
	return written, nil
}

func (t *tail) trim() {
	if over := len(t.kept) - t.limit; over > 0 {
		t.dropped += int64(over)
		t.kept = t.kept[:copy(t.kept, t.kept[over:])]
	}
}

// bytes returns the tail itself, and how many bytes came before it.
func (t *tail) bytes() (last []byte, dropped int64) {
	t.trim()
	return t.kept, t.dropped
}

// capped writes the first left bytes to w and drops the rest. A failing w ends
// it too: a full disk must not end the job whose log it can't hold.
type capped struct {
	w    io.Writer
	left int64
}

// Write never fails.
func (c *capped) Write(p []byte) (int, error) {
	take := min(int64(len(p)), c.left)
	if take > 0 {
		n, err := c.w.Write(p[:take])
		c.left -= int64(n)
		if err != nil {
			c.left = 0
		}
	}
	return len(p), nil
}
