package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-ci/spillway/access"
)

// Limits of the access section.
const (
	MaxAccess = 1_000 // entries: each call that presents a token is compared with all
	// maxAccessNameBytes bounds the name of an entry [bytes].
	maxAccessNameBytes = 128
)

// Access is who may call listen.api, by what proof, and what for.
type Access struct {
	Name  string       `yaml:"name"`
	Token SecretSource `yaml:"token,omitempty"`
	// Certificate is a name in a client certificate: DNS:…, URI:… or CN=….
	Certificate string   `yaml:"certificate,omitempty"`
	Roles       []string `yaml:"roles"`
}

// Audit says where is kept who did what.
type Audit struct {
	File string `yaml:"file,omitempty"` // JSON lines; empty: the log
}

// AccessRoles are the entry's roles.
func (a *Access) AccessRoles() []access.Role {
	roles := make([]access.Role, len(a.Roles))
	for i, r := range a.Roles {
		roles[i] = access.Role(r)
	}
	return roles
}

func roleNames() []string {
	var names []string
	for _, r := range access.Roles() {
		names = append(names, string(r))
	}
	return names
}

func (v *validator) access() {
	c := v.config
	if v.at["access"] == nil {
		return
	}
	v.need(len(c.Access) > 0, "access", "names nobody; add an entry, or remove the section to let in whoever can connect")
	v.need(len(c.Access) <= MaxAccess, "access", "%d entries, at most %d are allowed", len(c.Access), MaxAccess)
	names, tokens, subjects := map[string]int{}, map[SecretSource]int{}, map[string]int{}
	for i := range c.Access {
		a, path := &c.Access[i], fmt.Sprintf("access[%d]", i)
		v.need(len(a.Name) <= maxAccessNameBytes && replicaName(a.Name), path+".name",
			"%s cannot name an entry; use 1 to %d letters, digits, dots, - and _", quote(a.Name), maxAccessNameBytes)
		v.once(names, a.Name, a.Name != "", i, path+".name", "name")
		v.once(subjects, a.Certificate, a.Certificate != "", i, path+".certificate", "certificate")
		if first, again := tokens[a.Token]; again && !a.Token.IsZero() {
			v.need(false, path+".token", "is the token of access[%d] already; a token names one of them only", first)
		}
		tokens[a.Token] = i
		v.proof(a, path)
		v.roles(a, path)
	}
	v.rolesOfNobody()
}

// once refuses a second entry with the same value.
func (v *validator) once(seen map[string]int, value string, set bool, i int, path, what string) {
	if !set {
		return
	}
	if first, again := seen[value]; again {
		v.need(false, path, "%s is the %s of access[%d] already (line %d); each entry needs its own", quote(value), what, first, v.where(fmt.Sprintf("access[%d].%s", first, what)).Line)
		return
	}
	seen[value] = i
}

func (v *validator) proof(a *Access, path string) {
	v.need(!a.Token.IsZero() || a.Certificate != "" || !v.read(path+".token"), path, "nothing proves that a caller is this one; name a token, a certificate, or both of which either will do")
	if a.Certificate == "" {
		return
	}
	if err := access.CheckSubject(a.Certificate); err != nil {
		v.need(false, path+".certificate", "%s: %v", quote(a.Certificate), err)
	}
	v.need(v.config.Listen.TLS.CAFile != "", path+".certificate", "client certificates are asked for only with listen.tls.ca_file; set it to their authority's certificate")
}

func (v *validator) roles(a *Access, path string) {
	v.need(len(a.Roles) > 0, path+".roles", "an entry without a role may do nothing; %s", list(roleNames()))
	for i, role := range a.Roles {
		at := fmt.Sprintf("%s.roles[%d]", path, i)
		v.need(access.Role(role).Known(), at, "there is no role %s; %s", quote(role), suggest(role, roleNames()))
		v.need(!slices.Contains(a.Roles[:i], role), at, "%s is listed twice; once is enough", quote(role))
	}
}

// rolesOfNobody warns of the two roles without which a control plane is of little use,
// and of those that a section of this file is about.
func (v *validator) rolesOfNobody() {
	wanted := []string{string(access.Read), string(access.Push)}
	for section, role := range map[string]access.Role{"admission": access.Admit, "coordinator": access.Coordinate, "cells": access.Cell} {
		if v.at[section] != nil {
			wanted = append(wanted, string(role))
		}
	}
	slices.Sort(wanted)
	wanted = slices.DeleteFunc(wanted, func(role string) bool {
		return slices.ContainsFunc(v.config.Access, func(a Access) bool { return slices.Contains(a.Roles, role) })
	})
	if len(wanted) > 0 {
		v.warnf("access", "nobody has the role %s, so everybody is refused what it allows; give it to an entry", strings.Join(wanted, ", nor "))
	}
}
