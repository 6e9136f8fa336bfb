package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway/access"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	coordinatorpb "github.com/spillway-ci/spillway/proto/coordinator"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
)

// tokensEvery is how often the tokens of the access section are read again: often enough
// that one that leaked can be replaced at once.
const tokensEvery = 5 * time.Second

// makeAccess makes the guard of listen.api and the audit, before anybody needs them.
func (c *ControlPlane) makeAccess(context.Context) (err error) {
	options := access.AuditOptions{Log: c.log, Redact: config.Redact, Lost: c.metrics.AuditLost}
	c.audit = access.NewLogAudit(options)
	if path := c.cfg.Audit.File; path != "" {
		if c.auditFile, err = access.OpenFile(path, options); err != nil {
			return err
		}
		c.audit = c.auditFile
	}
	granted, err := grants(c.cfg)
	if err != nil {
		return err
	}
	c.guard = access.NewGuard(access.GuardOptions{
		Grants: granted, NeedCertificate: c.cfg.Listen.TLS.CAFile != "",
		Rules: access.DefaultRules(), Audited: audited(), Audit: c.audit, Refused: c.metrics.AccessRefused,
	})
	return nil
}

// grants reads the tokens of the access section; nil without one.
func grants(cfg *config.Config) (*access.Grants, error) {
	if len(cfg.Access) == 0 {
		return nil, nil //nolint:nilnil // nil is how access says "no section"
	}
	all := make([]access.Grant, 0, len(cfg.Access))
	var errs []error
	for i := range cfg.Access {
		a := &cfg.Access[i]
		g := access.Grant{Name: a.Name, Certificate: a.Certificate, Roles: a.AccessRoles()}
		if !a.Token.IsZero() {
			secret, err := a.Token.Read()
			if err == nil {
				g.Token, err = access.HashOf(secret.Reveal())
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("access[%d].token: %w", i, err))
				continue
			}
		}
		all = append(all, g)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	made, err := access.NewGrants(all)
	if err != nil {
		return nil, fmt.Errorf("access: %w", err)
	}
	return made, nil
}

// followTokens reads the tokens again and again. Those that can't be read change nothing.
func (c *ControlPlane) followTokens(ctx context.Context) {
	look := time.NewTicker(tokensEvery)
	defer look.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		granted, err := grants(c.rules.Load())
		switch {
		case err == nil:
			c.guard.Replace(granted)
			said = ""
		case err.Error() != said:
			said = err.Error()
			c.log.Warn("the access section can't be read again; what it said before stays in force", "error", err)
		}
	}
}

// apiTLS is the TLS of listeners whose callers are refused in a sentence if they have no
// certificate and need one; pagesTLS is that of the others. nil: none.
func (c *ControlPlane) apiTLS() (*tls.Config, error) {
	return c.certificates.Listener(c.cfg.Listen.TLS, tlsfiles.NamedClient)
}

func (c *ControlPlane) pagesTLS() (*tls.Config, error) {
	return c.certificates.Listener(c.cfg.Listen.TLS, tlsfiles.AnyClient)
}

// guarded are the guard's interceptors, for listen.api.
func (c *ControlPlane) guarded() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(c.guard.Unary), grpc.ChainStreamInterceptor(c.ticketed(c.guard.Stream))}
}

// certified are the interceptors of listen.runners: a runner's token says who it is, and
// with a CA file it needs a certificate besides.
func (c *ControlPlane) certified() []grpc.ServerOption {
	if c.cfg.Listen.TLS.CAFile == "" {
		return nil
	}
	unary, stream := access.NeedCertificate()
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(unary), grpc.ChainStreamInterceptor(stream)}
}

// audited are the calls that the guard itself keeps, and what of their requests.
func audited() map[string]func(any) access.Entry {
	return map[string]func(any) access.Entry{
		jobsv1.JobService_Cancel_FullMethodName: func(r any) access.Entry {
			q, _ := r.(*jobsv1.CancelRequest)
			return access.Entry{Action: "job.cancel", Object: listed(q.GetJobIds()), Detail: q.GetReason()}
		},
		jobsv1.JobService_Retry_FullMethodName: func(r any) access.Entry {
			q, _ := r.(*jobsv1.RetryRequest)
			return access.Entry{Action: "job.retry", Object: q.GetJobId(), Detail: q.GetReason()}
		},
		coordinatorpb.PoolCoordinator_RegisterPool_FullMethodName: func(r any) access.Entry {
			q, _ := r.(*coordinatorpb.RegisterPoolRequest)
			return access.Entry{Action: "pool.register", Object: q.GetName(), Detail: listed(q.GetTags())}
		},
		coordinatorpb.PoolCoordinator_UnregisterPool_FullMethodName: func(r any) access.Entry {
			q, _ := r.(*coordinatorpb.UnregisterPoolRequest)
			return access.Entry{Action: "pool.unregister", Object: q.GetName()}
		},
		adminv1.AdminService_SetPriority_FullMethodName: func(r any) access.Entry {
			q, _ := r.(*adminv1.SetPriorityRequest)
			to := fmt.Sprint(q.GetPriority())
			if q.GetClear() {
				to = "as configured"
			}
			return access.Entry{Action: "priority.set", Object: q.GetPool(), Detail: to}
		},
	}
}

// listed is the first of ids, and how many there are.
func listed(ids []string) string {
	const shown = 10
	if len(ids) <= shown {
		return strings.Join(ids, " ")
	}
	return fmt.Sprintf("%s … (%d in all)", strings.Join(ids[:shown], " "), len(ids))
}

// peerTLS is how other replicas are reached, which have a certificate as ours.
func (c *ControlPlane) peerTLS() (func(serverName string) *tls.Config, error) {
	s, err := c.certificates.Open("listen.tls", c.cfg.Listen.TLS)
	if err != nil {
		return nil, err
	}
	return s.Peer, nil
}
