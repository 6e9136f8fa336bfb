package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Table is what one benchmark found.
type Table struct {
	Name  string   `json:"name"`
	What  string   `json:"what"`
	Noise Noise    `json:"noise"`
	Rows  []Row    `json:"rows"`
	Notes []string `json:"notes,omitempty"`
	Err   string   `json:"error,omitempty"` // what broke
}

// Disturbed turns every timed verdict into noisy, if others took too much of the
// machine. Exact counters keep theirs.
func (t *Table) Disturbed() {
	if !t.Noise.TooMuch() {
		return
	}
	for i := range t.Rows {
		if r := &t.Rows[i]; !r.Exact && (r.Verdict == Met || r.Verdict == Missed) {
			r.Verdict = Noisy
		}
	}
}

// Broken reports whether something failed that no load excuses.
func (t *Table) Broken() bool {
	if t.Err != "" {
		return true
	}
	for i := range t.Rows {
		if t.Rows[i].Verdict == Wrong {
			return true
		}
	}
	return false
}

// WriteText prints the table for people.
func (t *Table) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "\n## %s: %s\n   %s\n", t.Name, t.What, t.Noise); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "subject\tmedian [min..max]\tratio [min..max]\ttarget\tverdict")
	for i := range t.Rows {
		r := &t.Rows[i]
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", r.Subject, r.value(), r.ratio(), r.Target, r.Verdict)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range t.notes() {
		if _, err := fmt.Fprintf(w, "   %s\n", n); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) notes() []string {
	var out []string
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Note != "" {
			out = append(out, string(r.Verdict)+" "+r.Subject+": "+r.Note)
		}
	}
	out = append(out, t.Notes...)
	if t.Err != "" {
		out = append(out, "BROKEN: "+t.Err)
	}
	return out
}

func (r *Row) value() string {
	if r.Unit == "" {
		return ""
	}
	if r.Value.Min == r.Value.Max {
		return figure(r.Value.Median) + " " + r.Unit
	}
	return fmt.Sprintf("%s %s [%s..%s]", figure(r.Value.Median), r.Unit, figure(r.Value.Min), figure(r.Value.Max))
}

func (r *Row) ratio() string {
	switch {
	case r.Verdict == Reference:
		return "1"
	case r.Ratio == nil:
		return ""
	case r.Ratio.Min == r.Ratio.Max:
		return fmt.Sprintf("%.2f", r.Ratio.Median)
	default:
		return fmt.Sprintf("%.2f [%.2f..%.2f]", r.Ratio.Median, r.Ratio.Min, r.Ratio.Max)
	}
}

// WriteJSON prints tables for programs.
func WriteJSON(w io.Writer, tables []*Table) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"benchmarks": tables})
}
