package providertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// ConfigCase is a configuration, and what should be said of it.
type ConfigCase struct {
	Config string // JSON
	// Mistakes are parts of Configure's ErrInvalid, such as the setting's path. None:
	// Configure takes it.
	Mistakes []string
	// BeyondSchema are mistakes that a schema can't know of: a file that is absent, a
	// min above the max. Any other is the schema's to find, too: the control plane
	// holds a file against it before it starts a plugin.
	BeyondSchema bool
}

// RunConfigs checks that Configure and Description.ConfigSchema agree about each of
// the cases. open returns a fresh provider; nothing is called but Describe,
// Configure and Close.
func RunConfigs(t *testing.T, open func() pluginsdk.Provider, cases ...ConfigCase) {
	t.Helper()
	for _, c := range cases {
		if err := c.check(t.Context(), open()); err != nil {
			t.Errorf("%s\n%s", c.Config, err)
		}
	}
}

func (c ConfigCase) check(ctx context.Context, p pluginsdk.Provider) error {
	d, err := p.Describe(ctx)
	if err != nil {
		return err
	}
	schema, err := compile(d.ConfigSchema)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(c.Config))
	if err != nil {
		return fmt.Errorf("the case is not JSON: %w", err)
	}
	return errors.Join(c.checkSchema(schema.Validate(value)), c.checkConfigure(p.Configure(ctx, []byte(c.Config))), p.Close(ctx))
}

func (c ConfigCase) checkSchema(said error) error {
	switch valid := len(c.Mistakes) == 0 || c.BeyondSchema; {
	case valid && said != nil:
		return fmt.Errorf("the schema refuses it: %w", said)
	case !valid && said == nil:
		return errors.New("the schema allows it")
	default:
		return nil
	}
}

func (c ConfigCase) checkConfigure(said error) error {
	if len(c.Mistakes) == 0 {
		if said != nil {
			return fmt.Errorf("it is refused: %w", said)
		}
		return nil
	}
	if err := want(pluginsdk.KindInvalid, said); err != nil {
		return err
	}
	for _, mistake := range c.Mistakes {
		if !strings.Contains(said.Error(), mistake) {
			return fmt.Errorf("nothing is said of %q: %w", mistake, said)
		}
	}
	return nil
}
