package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

//go:embed schema.txt
var resourcesText string

// providerText is what the provider block takes, as far as the modules need it.
const providerText = `
provider
  project optional "string"
  region optional "string"
  zone optional "string"
`

const indent = "  " // one level

// nestings are the ways in which a block may be repeated.
var nestings = map[string]tfprotov5.SchemaNestedBlockNestingMode{
	"list":   tfprotov5.SchemaNestedBlockNestingModeList,
	"set":    tfprotov5.SchemaNestedBlockNestingModeSet,
	"single": tfprotov5.SchemaNestedBlockNestingModeSingle,
}

// parse reads schemas in the format of schema.txt, by the name of their resource.
func parse(text string) (map[string]*tfprotov5.Schema, error) {
	schemas := map[string]*tfprotov5.Schema{}
	var open []*tfprotov5.SchemaBlock // the resource and its blocks that lead to this line
	for number, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / len(indent)
		if depth == 0 {
			schema := &tfprotov5.Schema{Block: &tfprotov5.SchemaBlock{}}
			schemas[words[0]], open = schema, []*tfprotov5.SchemaBlock{schema.Block}
			continue
		}
		if depth > len(open) {
			return nil, fmt.Errorf("line %d: there is no block that it is in", number+1)
		}
		open = open[:depth]
		inner, err := add(open[depth-1], words)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		if inner != nil {
			open = append(open, inner)
		}
	}
	return schemas, nil
}

// add adds what a line says to the block that it is in; inner is nil unless it is a block.
func add(to *tfprotov5.SchemaBlock, words []string) (inner *tfprotov5.SchemaBlock, err error) {
	name, last := words[0], words[len(words)-1]
	if mode, ok := nestings[words[1]]; ok && len(words) == 3 {
		block := &tfprotov5.SchemaNestedBlock{TypeName: name, Nesting: mode, Block: &tfprotov5.SchemaBlock{}}
		if block.MinItems, block.MaxItems, err = bounds(last); err != nil {
			return nil, err
		}
		to.BlockTypes = append(to.BlockTypes, block)
		return block.Block, nil
	}
	kind, err := tftypes.ParseJSONType(json.RawMessage(last)) //nolint:staticcheck // the types are in Terraform's JSON
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	flags := words[1 : len(words)-1]
	to.Attributes = append(to.Attributes, &tfprotov5.SchemaAttribute{
		Name: name, Type: kind,
		Required: slices.Contains(flags, "required"), Optional: slices.Contains(flags, "optional"),
		Computed: slices.Contains(flags, "computed"), Sensitive: slices.Contains(flags, "sensitive"),
	})
	return nil, nil
}

// bounds reads how many blocks there may be: 0..1, or 1.. for any number from 1.
func bounds(text string) (low, high int64, err error) {
	from, to, _ := strings.Cut(text, "..")
	if low, err = strconv.ParseInt(from, 10, 64); err != nil || to == "" {
		return low, 0, err
	}
	high, err = strconv.ParseInt(to, 10, 64)
	return low, high, err
}
