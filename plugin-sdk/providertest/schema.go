package providertest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compile reads a Description's ConfigSchema.
func compile(text string) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	const url = "plugin:///config.schema.json"
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	schema, err := c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("the schema is not valid: %w", err)
	}
	return schema, nil
}

// checkSchema compiles the schema and holds config against it.
func checkSchema(text string, config []byte) error {
	schema, err := compile(text)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err != nil {
		return fmt.Errorf("the subject's config is not JSON: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("the subject's config: %w", err)
	}
	if schema.Validate([]any{}) == nil {
		return errors.New("the schema allows a config that is not an object")
	}
	return nil
}

// noLoader keeps references within the schema: a plugin is one file.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%q is outside the schema", url)
}
