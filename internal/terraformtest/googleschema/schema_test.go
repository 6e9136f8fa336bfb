package main

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
)

func TestSchemaIsRead(t *testing.T) {
	resources, err := parse(resourcesText)
	if err != nil {
		t.Fatal(err)
	}
	group := resources["google_compute_region_instance_group_manager"]
	if group == nil {
		t.Fatal("the group is missing")
	}
	for _, block := range group.Block.BlockTypes {
		if block.TypeName != "version" {
			continue
		}
		if block.MinItems != 1 || block.MaxItems != 0 || block.Nesting != tfprotov5.SchemaNestedBlockNestingModeList || len(block.Block.BlockTypes) != 1 {
			t.Fatalf("version: %+v", block)
		}
		return
	}
	t.Fatal("a group without a version")
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for name, text := range map[string]string{
		"no such type":   "a\n  b optional \"strin\"",
		"no block":       "a\n    b optional \"string\"",
		"no bounds":      "a\n  b list x..1",
		"no upper bound": "a\n  b list 0..x",
	} {
		if _, err := parse(text); err == nil {
			t.Error(name)
		}
	}
}
