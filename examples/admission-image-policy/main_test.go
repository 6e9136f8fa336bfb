package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

func TestJudge(t *testing.T) {
	var p patterns
	require.NoError(t, p.add("registry.example.com/*/*:v*"))
	require.NoError(t, p.add("postgres:16"))
	require.Error(t, p.add("["))
	for _, c := range []struct {
		image    string
		services []string
		reason   string
	}{
		{"registry.example.com/team/app:v1", []string{"postgres:16"}, ""},
		{"registry.example.com/team/app:latest", nil, "image registry.example.com/team/app:latest is not allowed; allowed are registry.example.com/*/*:v*, postgres:16"},
		{"registry.example.com.evil/team/app:v1", nil, "is not allowed"},
		{"postgres:16", []string{"miner:latest"}, "image miner:latest is not allowed"},
		{"", nil, "the job names no image"},
	} {
		ok, reason := p.judge(t.Context(), &admissionv1.ReviewedJob{Image: c.image, Services: c.services})
		require.Equal(t, c.reason == "", ok, c.image)
		require.Contains(t, reason, c.reason)
	}
	require.NoError(t, p.add(""))
	ok, _ := p.judge(t.Context(), &admissionv1.ReviewedJob{})
	require.True(t, ok)
}
