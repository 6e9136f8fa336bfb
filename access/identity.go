package access

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// How an identity was proven: Identity.Via.
const (
	ViaToken       = "token"
	ViaCertificate = "certificate"
	ViaOpen        = "open" // not at all: the configuration has no access section
)

// Identity is who calls.
type Identity struct {
	Name string // as the configuration has it; "anyone" via open
	Via  string // "token" | "certificate" | "open"
	// Subject is the certificate's own name, such as DNS:worker-7.example: an entry may be
	// for many.
	Subject string
	Roles   []Role
}

// Has reports whether the identity has one of the roles.
func (i Identity) Has(roles ...Role) bool {
	return slices.ContainsFunc(roles, func(r Role) bool { return slices.Contains(i.Roles, r) })
}

// Open is the identity of every caller without an access section.
func Open() Identity { return Identity{Name: "anyone", Via: ViaOpen, Roles: openRoles()} }

type identityKey struct{}

// With returns ctx with the caller's identity.
func With(ctx context.Context, i Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, i)
}

// From returns the caller's identity, and whether there is one.
func From(ctx context.Context) (Identity, bool) {
	i, ok := ctx.Value(identityKey{}).(Identity)
	return i, ok
}

// Require returns nil if the caller has the role, otherwise a status Unauthenticated
// or PermissionDenied with a sentence that says what is missing.
func Require(ctx context.Context, role Role) error { return RequireAny(ctx, role) }

// RequireAny is Require for a thing that each of the roles allows.
func RequireAny(ctx context.Context, roles ...Role) error {
	i, ok := From(ctx)
	switch {
	case !ok:
		return status.Error(codes.Unauthenticated, "nobody has said who calls: present a token or a client certificate that the control plane's access section names")
	case i.Has(roles...):
		return nil
	case i.Via == ViaOpen:
		return status.Errorf(codes.PermissionDenied, "this needs the role %s, which only an access section in the control plane's configuration gives: add an entry with a token or a certificate there", either(roles))
	default:
		return status.Errorf(codes.PermissionDenied, "%q (by %s) does not have the role %s: add it to the roles of that entry in the control plane's access section", i.Name, i.Via, either(roles))
	}
}
