package coordinator

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Submitter puts jobs into the queue; *session.Jobs is one.
type Submitter interface {
	Submit(ctx context.Context, job spillway.Job) (store.PushOutcome, error)
}

// Store is what replicas share of workers and their pools; *store.Store is one.
type Store interface {
	PutWork(ctx context.Context, w store.Work, ttl time.Duration) error
	Work(ctx context.Context, machine spillway.MachineID) (w store.Work, ok bool, err error)
	DropWork(ctx context.Context, w store.Work) error

	TakeSeat(ctx context.Context, pool string, machine spillway.MachineID, most int, ttl time.Duration) (taken bool, err error)
	KeepSeats(ctx context.Context, seats map[string][]spillway.MachineID, ttl time.Duration) error
	LeaveSeat(ctx context.Context, pool string, machine spillway.MachineID) error

	GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error)
	Counts(ctx context.Context) ([]router.ClassCount, error)
	Machines(ctx context.Context) ([]router.Machine, error)

	CreateSetting(ctx context.Context, kind, name string, data []byte) (created bool, err error)
	DropSetting(ctx context.Context, kind, name string) (dropped bool, err error)
	Settings(ctx context.Context, kind string) (map[string][]byte, error)
	SettingPokes(ctx context.Context, kind string) (<-chan struct{}, error)

	PublishFact(ctx context.Context, topic string, data []byte) error
	Facts(ctx context.Context, topic string) (<-chan []byte, error)
}
