package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
)

// MinTokenBytes is how long a token must be at least [bytes]: shorter ones can be found
// by trying.
const MinTokenBytes = 16

// ErrShortToken is wrapped for a token below MinTokenBytes.
var ErrShortToken = fmt.Errorf("the token is shorter than %d characters; make one with: openssl rand -hex 32", MinTokenBytes)

// Hash is a token that can be compared and not read.
type Hash [sha256.Size]byte

// HashOf is the hash of a token. A token is long and random, so that one round of a
// fast hash tells nothing of it.
func HashOf(token string) (Hash, error) {
	if len(token) < MinTokenBytes {
		return Hash{}, ErrShortToken
	}
	return sha256.Sum256([]byte(token)), nil
}

// Grant is one entry of the configuration: what proves an identity, and its roles. If
// both a token and a certificate are named, either proves it.
type Grant struct {
	Name        string
	Token       Hash   // zero: none
	Certificate string // a Subject; empty: none
	Roles       []Role
}

// Grants are all entries. They are never changed.
type Grants struct {
	all []Grant
}

// NewGrants refuses two entries that one token or one subject would prove.
func NewGrants(all []Grant) (*Grants, error) {
	tokens, subjects := map[Hash]string{}, map[string]string{}
	var errs []error
	for _, g := range all {
		if g.Token != (Hash{}) {
			if other, taken := tokens[g.Token]; taken {
				errs = append(errs, fmt.Errorf("%s has the same token as %s: a token names one of them only", g.Name, other))
			}
			tokens[g.Token] = g.Name
		}
		if g.Certificate != "" {
			if other, taken := subjects[g.Certificate]; taken {
				errs = append(errs, fmt.Errorf("%s has the same certificate as %s: %s names one of them only", g.Name, other, g.Certificate))
			}
			subjects[g.Certificate] = g.Name
		}
	}
	return &Grants{all}, errors.Join(errs...)
}

// byToken finds a token's entry. Every entry is compared, each in constant time, so that
// the time tells neither where the first difference is nor which entry it was.
func (g *Grants) byToken(token string) (Identity, bool) {
	presented := sha256.Sum256([]byte(token))
	found := -1
	for i := range g.all {
		same := subtle.ConstantTimeCompare(presented[:], g.all[i].Token[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return Identity{}, false
	}
	return g.identity(found, ViaToken, ""), true
}

// byCertificate finds a verified certificate's entry: by its URI and DNS names first, and
// only if none of them has one by its common name. Among the former a name written out
// wins over one with *.
func (g *Grants) byCertificate(cert *x509.Certificate) (Identity, bool) {
	same := func(pattern, subject string) bool { return pattern == subject }
	for _, match := range []func(pattern, subject string) bool{same, covers} {
		if i, ok := g.bySubject(alternativeNames(cert), match); ok {
			return i, true
		}
	}
	return g.bySubject(commonName(cert), same)
}

func (g *Grants) bySubject(subjects []string, match func(pattern, subject string) bool) (Identity, bool) {
	for _, subject := range subjects {
		for i := range g.all {
			if g.all[i].Certificate != "" && match(g.all[i].Certificate, subject) {
				return g.identity(i, ViaCertificate, subject), true
			}
		}
	}
	return Identity{}, false
}

func (g *Grants) identity(i int, via, subject string) Identity {
	return Identity{Name: g.all[i].Name, Via: via, Subject: subject, Roles: g.all[i].Roles}
}

// Subjects are the names that a certificate proves, as Grant.Certificate has them: its
// URIs, its DNS names, its common name.
func Subjects(cert *x509.Certificate) []string {
	return append(alternativeNames(cert), commonName(cert)...)
}

func alternativeNames(cert *x509.Certificate) (out []string) {
	for _, uri := range cert.URIs {
		out = append(out, "URI:"+uri.String())
	}
	for _, name := range cert.DNSNames {
		out = append(out, "DNS:"+strings.ToLower(name))
	}
	return out
}

func commonName(cert *x509.Certificate) []string {
	if cert.Subject.CommonName == "" {
		return nil
	}
	return []string{"CN=" + cert.Subject.CommonName}
}

// CheckSubject says what is wrong with the name of a certificate in a configuration.
func CheckSubject(s string) error {
	kind, rest := s, ""
	for _, prefix := range []string{"DNS:", "URI:", "CN="} {
		if after, ok := strings.CutPrefix(s, prefix); ok {
			kind, rest = prefix, after
		}
	}
	switch {
	case rest == "":
		return errors.New("write DNS:name, URI:uri or CN=name, as the certificate has it")
	case kind == "DNS:" && rest != strings.ToLower(rest):
		return errors.New("write a DNS name in lower case")
	case !strings.Contains(rest, "*"):
		return nil
	case kind == "DNS:" && strings.HasPrefix(rest, "*.") && strings.Count(rest, "*") == 1 && strings.Count(rest, ".") > 1:
		return nil
	case kind == "URI:" && strings.HasSuffix(rest, "/*") && strings.Count(rest, "*") == 1 && !strings.HasSuffix(rest, "//*"):
		return nil
	default:
		return errors.New("* stands for the first label of a DNS name (DNS:*.workers.example) or for the last segment of a URI (URI:spiffe://example/worker/*), and for nothing else")
	}
}

// covers reports whether a pattern with a * is for the subject.
func covers(pattern, subject string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "DNS:*"); ok {
		name, isDNS := strings.CutPrefix(subject, "DNS:")
		label, cut := strings.CutSuffix(name, suffix)
		return isDNS && cut && label != "" && !strings.Contains(label, ".")
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(pattern, "URI:") {
		segment, cut := strings.CutPrefix(subject, prefix)
		return cut && segment != "" && !strings.Contains(segment, "/")
	}
	return false
}
