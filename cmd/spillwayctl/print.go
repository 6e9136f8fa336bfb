package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// show prints m as JSON if that is wanted, else what table prints.
func (a *app) show(m proto.Message, table func(w io.Writer)) error {
	if a.output == "json" {
		return writeJSON(a.stdout, m)
	}
	table(a.stdout)
	return nil
}

// writeJSON writes the names of the .proto files and every field, so that a
// program finds zeros too. protojson varies its blanks on purpose; the second pass
// makes equal answers equal bytes.
func writeJSON(w io.Writer, m proto.Message) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing the answer as JSON: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return fmt.Errorf("writing the answer as JSON: %w", err)
	}
	out.WriteByte('\n')
	_, err = w.Write(out.Bytes())
	return err
}

// table collects rows of cells and aligns them.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, header ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(header...)
	return t
}

// row ends with no blanks, so that output can be compared.
func (t table) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	for len(cells) > 1 && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1]
	}
	_, _ = io.WriteString(t.w, strings.Join(cells, "\t")+"\n") // Flush reports what fails
}

func (t table) flush() { _ = t.w.Flush() } // stdout is gone: nobody reads

// printable keeps what others wrote (job names, errors) from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, s)
}

// asOf is the time that an answer is of, by the clock of who gave it: ours may differ. A
// control plane of before doesn't say.
func (a *app) asOf(at *timestamppb.Timestamp) time.Time {
	if at == nil {
		return a.now()
	}
	return at.AsTime()
}

// age is how long ago t was, as people say it.
func age(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return "never"
	}
	return human(now.Sub(t.AsTime())) + " ago"
}

// human rounds to what matters.
func human(d time.Duration) string {
	switch d = max(0, d); {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}

func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().UTC().Format("2006-01-02 15:04:05")
}

// between is the time from a to b, "-" if one of them is not known.
func between(a, b *timestamppb.Timestamp) string {
	if a == nil || b == nil {
		return "-"
	}
	return human(b.AsTime().Sub(a.AsTime()))
}

func short(fingerprint string) string { return fingerprint[:min(len(fingerprint), 12)] }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func tags(r *typesv1.Requirement) string {
	s := strings.Join(r.GetTags(), ",")
	if s == "" {
		s = "(untagged)"
	}
	if r.GetProtected() {
		s += " protected"
	}
	return s
}

func stateName(s typesv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}

func number[T ~int32 | ~int64 | ~int](n T) string { return fmt.Sprint(n) }
