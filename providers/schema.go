package providers

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// MaxSchemaBytes bounds the schema that a plugin sends [bytes].
const MaxSchemaBytes = 1 << 20

// maxMistakes bounds how many are reported at once.
const maxMistakes = 20

// checkConfig holds config against the plugin's own schema, as the contract
// promises, so that an author's Configure may rely on it. Mistakes are named by
// place and rule only: what stands there might be a secret.
func checkConfig(schemaText string, config []byte) error {
	schema, err := compileSchema(schemaText)
	if err != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the plugin's config schema: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err != nil {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the config is not JSON")
	}
	if _, ok := value.(map[string]any); !ok {
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the config is not a JSON object")
	}
	err = schema.Validate(value)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "config: %s", strings.Join(mistakes(invalid, nil), "; "))
	default:
		return pluginsdk.Errorf(pluginsdk.KindInvalid, "the config can't be checked")
	}
}

func compileSchema(text string) (*jsonschema.Schema, error) {
	if len(text) > MaxSchemaBytes {
		return nil, fmt.Errorf("has %d bytes, the limit is %d", len(text), MaxSchemaBytes)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	const url = "plugin:///config.schema.json"
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	return c.Compile(url)
}

// noLoader refuses references out of the schema: a plugin shall not make the
// host open files.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%q is outside the schema", url)
}

// mistakes lists the leaves of the tree of causes.
func mistakes(e *jsonschema.ValidationError, list []string) []string {
	if len(list) >= maxMistakes {
		return list
	}
	if len(e.Causes) == 0 {
		return append(list, mistake(e))
	}
	for _, cause := range e.Causes {
		list = mistakes(cause, list)
	}
	return list
}

func mistake(e *jsonschema.ValidationError) string {
	where := "/" + strings.Join(e.InstanceLocation, "/")
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		return fmt.Sprintf("%s: unknown %s", where, strings.Join(k.Properties, ", "))
	case *kind.Required:
		return fmt.Sprintf("%s: missing %s", where, strings.Join(k.Missing, ", "))
	case *kind.Type:
		return fmt.Sprintf("%s: must be %s, is %s", where, strings.Join(k.Want, " or "), k.Got)
	default:
		return fmt.Sprintf("%s: breaks %q", where, strings.Join(e.ErrorKind.KeywordPath(), "/"))
	}
}
