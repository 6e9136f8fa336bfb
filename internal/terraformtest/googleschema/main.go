package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tfprotov5/tf5server"
)

const address = "registry.terraform.io/hashicorp/google"

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "googleschema:", err)
		os.Exit(1)
	}
}

func serve() error {
	s := &server{}
	var err error
	if s.resources, err = parse(resourcesText); err != nil {
		return fmt.Errorf("schema.txt: %w", err)
	}
	provider, err := parse(providerText)
	if err != nil {
		return err
	}
	s.provider = provider["provider"]
	return tf5server.Serve(address, func() tfprotov5.ProviderServer { return s })
}

// server answers what is asked by validate, and by test with all resources mocked. The
// embedded interface is nil: Terraform asks for nothing else then, and if it does, this
// provider ends, which is better than to make up an answer.
type server struct {
	tfprotov5.ProviderServer
	provider  *tfprotov5.Schema
	resources map[string]*tfprotov5.Schema
}

func (s *server) GetMetadata(context.Context, *tfprotov5.GetMetadataRequest) (*tfprotov5.GetMetadataResponse, error) {
	answer := &tfprotov5.GetMetadataResponse{ServerCapabilities: &tfprotov5.ServerCapabilities{GetProviderSchemaOptional: true}}
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		answer.Resources = append(answer.Resources, tfprotov5.ResourceMetadata{TypeName: name})
	}
	return answer, nil
}

func (s *server) GetProviderSchema(context.Context, *tfprotov5.GetProviderSchemaRequest) (*tfprotov5.GetProviderSchemaResponse, error) {
	return &tfprotov5.GetProviderSchemaResponse{Provider: s.provider, ResourceSchemas: s.resources}, nil
}

func (s *server) PrepareProviderConfig(_ context.Context, ask *tfprotov5.PrepareProviderConfigRequest) (*tfprotov5.PrepareProviderConfigResponse, error) {
	return &tfprotov5.PrepareProviderConfigResponse{PreparedConfig: ask.Config}, nil
}

func (s *server) ConfigureProvider(context.Context, *tfprotov5.ConfigureProviderRequest) (*tfprotov5.ConfigureProviderResponse, error) {
	return &tfprotov5.ConfigureProviderResponse{}, nil
}

func (s *server) ValidateResourceTypeConfig(context.Context, *tfprotov5.ValidateResourceTypeConfigRequest) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

func (s *server) StopProvider(context.Context, *tfprotov5.StopProviderRequest) (*tfprotov5.StopProviderResponse, error) {
	return &tfprotov5.StopProviderResponse{}, nil
}
