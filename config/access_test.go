package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/config"
)

// mutual is a file whose listeners ask for client certificates.
const mutual = "listen: {tls: {cert_file: a, key_file: b, ca_file: c}}\n" + minimal

func TestAccessIsRead(t *testing.T) {
	c, err := config.Parse("f", []byte(mutual+`
access:
  - {name: ci, token: {file: /run/ci}, roles: [push, read]}
  - {name: workers, certificate: "DNS:*.workers.example", roles: [coordinate]}
audit: {file: /var/log/audit}
`))
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(c.Warnings()), "access")
	require.Equal(t, []config.Access{
		{Name: "ci", Token: config.SecretSource{File: "/run/ci"}, Roles: []string{"push", "read"}},
		{Name: "workers", Certificate: "DNS:*.workers.example", Roles: []string{"coordinate"}},
	}, c.Access)
	require.Equal(t, []access.Role{access.Push, access.Read}, c.Access[0].AccessRoles())
	require.Equal(t, "/var/log/audit", c.Audit.File)
}

func TestMistakesInAccess(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nobody", "access: []", "f: access: names nobody; add an entry, or remove the section"},
		{"no name", "access: [{token: {env: A}, roles: [read]}]", `access[0].name: "" cannot name an entry`},
		{"blank in a name", "access: [{name: a b, token: {env: A}, roles: [read]}]", `access[0].name: "a b" cannot name an entry`},
		{"no proof", "access: [{name: a, roles: [read]}]", "access[0]: nothing proves that a caller is this one"},
		{"no role", "access: [{name: a, token: {env: A}}]", "access[0].roles: an entry without a role may do nothing; there are admit, cell, coordinate, debug, operate, push, read"},
		{"unknown role", "access: [{name: a, token: {env: A}, roles: [raed]}]", `access[0].roles[0]: there is no role "raed"; did you mean read?`},
		{"role twice", "access: [{name: a, token: {env: A}, roles: [read, read]}]", `access[0].roles[1]: "read" is listed twice`},
		{"name twice", "access: [{name: a, token: {env: A}, roles: [read]}, {name: a, token: {env: B}, roles: [push]}]", `access[1].name: "a" is the name of access[0] already (line 1); each entry needs its own`},
		{"token twice", "access: [{name: a, token: {env: A}, roles: [read]}, {name: b, token: {env: A}, roles: [push]}]", "access[1].token: is the token of access[0] already"},
		{"certificate twice", "access: [{name: a, certificate: CN=x, roles: [read]}, {name: b, certificate: CN=x, roles: [push]}]", `access[1].certificate: "CN=x" is the certificate of access[0] already`},
		{"certificate of no kind", "access: [{name: a, certificate: x, roles: [read]}]", `access[0].certificate: "x": write DNS:name, URI:uri or CN=name`},
		{"star", "access: [{name: a, certificate: 'CN=*', roles: [read]}]", "access[0].certificate: \"CN=*\": * stands for the first label of a DNS name"},
		{"a secret in the file", "access: [{name: a, token: glrt-notActuallyASecret00, roles: [read]}]", "access[0].token: a secret must not stand in this file"},
		{"too many", "access: [" + strings.Repeat("{name: a, token: {env: A}, roles: [read]},", config.MaxAccess+1) + "]", fmt.Sprintf("access: %d entries, at most %d are allowed", config.MaxAccess+1, config.MaxAccess)},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(mutual, "listen:", c.text+"\nlisten:", 1)
			_, err := config.Parse("f", []byte(text))
			require.ErrorIs(t, err, config.ErrInvalid)
			require.Contains(t, strings.ReplaceAll(err.Error(), "f:1:", "f:"), c.want)
			require.NotContains(t, err.Error(), "notActually")
		})
	}
	_, err := config.Parse("f", []byte(minimal+"\naccess: [{name: a, certificate: CN=x, roles: [read]}]"))
	require.ErrorContains(t, err, "access[0].certificate: client certificates are asked for only with listen.tls.ca_file")
}

func TestRolesOfNobody(t *testing.T) {
	c, err := config.Parse("f", []byte(minimal+"\naccess: [{name: a, token: {env: A}, roles: [operate]}]"))
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(c.Warnings()), "access: nobody has the role push, nor read, so everybody is refused what it allows")
}
