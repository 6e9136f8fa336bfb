package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

func (a *app) admissionCommand() *cobra.Command {
	return group("admission", "Show the admission controllers", a.admissionListCommand(), a.admissionStatusCommand())
}

func (a *app) admissionListCommand() *cobra.Command {
	return a.admissionView("list", "List the configured controllers in the order in which they are asked", controllerTable)
}

func (a *app) admissionStatusCommand() *cobra.Command {
	return a.admissionView("status", "Show where instances of each controller are connected, and what they have to do", presenceTable)
}

func (a *app) admissionView(name, short string, table func(w io.Writer, controllers []*admissionv1.Controller)) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(func(c client) error {
				resp, err := ask(cmd.Context(), a, c.admission.ListControllers, &admissionv1.ListControllersRequest{})
				if err != nil {
					return err
				}
				return a.show(resp, func(w io.Writer) { table(w, resp.GetControllers()) })
			})
		},
	}
}

func controllerTable(w io.Writer, controllers []*admissionv1.Controller) {
	t := newTable(w, "CONTROLLER", "SCOPE", "DEADLINE", "BATCH", "OBEYED", "IS ALSO SHOWN")
	for _, c := range controllers {
		obeyed := "yes"
		if c.GetDryRun() {
			obeyed = "no (dry_run)"
		}
		t.row(c.GetName(), scopeOf(c), c.GetDeadline().AsDuration().String(), number(c.GetMaxBatch()), obeyed, dash(alsoShown(c)))
	}
	t.flush()
}

// scopeOf is a controller's scope with the first of its ids.
func scopeOf(c *admissionv1.Controller) string {
	const most = 5
	ids := append(append([]int64(nil), c.GetGroups()...), c.GetProjects()...)
	var words []string
	for i, id := range ids {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(ids)-most))
			break
		}
		words = append(words, fmt.Sprint(id))
	}
	return strings.TrimSpace(c.GetScope() + " " + strings.Join(words, ","))
}

func alsoShown(c *admissionv1.Controller) string {
	var shown []string
	if c.GetSendScript() {
		shown = append(shown, "script")
	}
	return strings.Join(append(shown, c.GetSendEnv()...), ",")
}

func presenceTable(w io.Writer, controllers []*admissionv1.Controller) {
	t := newTable(w, "CONTROLLER", "REPLICA", "INSTANCES", "WAITING", "ASKED", "SILENT")
	for _, c := range controllers {
		if len(c.GetPresence()) == 0 {
			t.row(c.GetName(), "(connected nowhere)")
		}
		for _, p := range c.GetPresence() {
			t.row(c.GetName(), p.GetReplica(), number(p.GetInstances()), number(p.GetWaiting()), number(p.GetAsked()), p.GetSilent().AsDuration().String())
		}
	}
	t.flush()
}
