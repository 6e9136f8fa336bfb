package controlplane

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/server"
)

const (
	// expiresSoon is when a certificate should have been renewed: a week is enough to
	// find out why it was not, without working at night.
	expiresSoon = 7 * 24 * time.Hour
	// soonShare is the same for those that live shorter than three weeks: what renews
	// them does so at two thirds of their life.
	soonShare = 3
)

// local looks at the files on this machine that the configuration names: certificates,
// and the tokens of the access section. Where others than this machine will run the
// control plane, they are not here.
func (i *surroundings) local(online bool) []Finding {
	missing := pluginsdk.FindingWarning
	if online {
		missing = pluginsdk.FindingError
	}
	i.certificates("listen.tls", i.cfg.Listen.TLS, missing)
	if r := i.cfg.Store.Redis; r != nil && r.TLS != nil {
		i.certificates("store.redis.tls", r.TLS.TLS, missing)
	}
	if k := i.cfg.Cells; k != nil {
		for n := range k.Peers {
			if p := &k.Peers[n]; p.TLS != nil {
				i.certificates(peerSetting(n, "tls"), p.TLS.TLS, missing)
			}
		}
	}
	for n := range i.cfg.Access {
		i.accessToken(fmt.Sprintf("access[%d].token", n), i.cfg.Access[n].Token, missing)
	}
	return i.mu.found
}

func (i *surroundings) accessToken(setting string, from config.SecretSource, missing pluginsdk.Severity) {
	if from.IsZero() {
		return
	}
	secret, err := from.Read()
	if err != nil {
		i.add("access_token_unreadable", missing, place{setting: setting}, "put the token there, or correct the setting", "%v", err)
		return
	}
	if _, err := access.HashOf(secret.Reveal()); err != nil {
		i.add("access_token_short", pluginsdk.FindingError, place{setting: setting}, "make one with: openssl rand -hex 32", "%v", err)
	}
}

func (i *surroundings) certificates(setting string, t config.TLS, missing pluginsdk.Severity) {
	at := place{setting: setting}
	if t == (config.TLS{}) {
		return
	}
	s, err := tlsfiles.Open(server.TLSFiles(t), tlsfiles.Options{})
	switch {
	case errors.Is(err, os.ErrNotExist):
		i.add("certificate_missing", missing, at, "put the files there, or check the configuration where it is used", "%v", err)
		return
	case err != nil:
		i.add("certificate_unusable", pluginsdk.FindingError, at, "write certificate and key again, as PEM", "%v", err)
		return
	}
	m := s.Current()
	if m.Certificate != nil {
		leaf := m.Certificate.Leaf
		i.lifetime(at, t.CertFile, leaf.NotBefore, leaf.NotAfter, time.Now())
	}
	if !m.AuthoritiesEnd.IsZero() {
		i.lifetime(at, t.CAFile, time.Time{}, m.AuthoritiesEnd, time.Now())
	}
	if info, err := os.Stat(t.KeyFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		i.add("key_readable_by_all", pluginsdk.FindingWarning, at, "chmod o= "+t.KeyFile, "everybody on this machine can read or change the key %s (mode %#o)", t.KeyFile, info.Mode().Perm())
	}
}

// lifetime looks at when a certificate is valid. A zero begin is one that nobody needs to know.
func (i *surroundings) lifetime(at place, file string, begin, end, now time.Time) {
	soon := expiresSoon
	if !begin.IsZero() {
		soon = min(soon, end.Sub(begin)/soonShare)
	}
	switch left := end.Sub(now).Round(time.Minute); {
	case now.After(end):
		i.add("certificate_expired", pluginsdk.FindingError, at, "renew it", "%s has expired at %s", file, end.UTC().Format(time.RFC3339))
	case now.Before(begin):
		i.add("certificate_not_yet_valid", pluginsdk.FindingError, at, "set the clock, or wait", "%s is not valid before %s", file, begin.UTC().Format(time.RFC3339))
	case left < soon:
		i.add("certificate_expires_soon", pluginsdk.FindingWarning, at, "renew it now, and find out why nothing has", "%s expires in %s, at %s", file, left, end.UTC().Format(time.RFC3339))
	}
}
