package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
)

// Rules say which roles allow a method: any one of them is enough. A key is a method
// with its service, or a service and /* for those of its methods that have no rule of
// their own. What has no rule is allowed to nobody.
type Rules map[string][]Role

// DefaultRules are those of the api listener.
func DefaultRules() Rules {
	const (
		admin = "/spillway.admin.v1.AdminService/"
		jobs  = "/spillway.jobs.v1.JobService/"
		pools = "/coordinator.PoolCoordinator/"
	)
	look := []Role{Read}
	follow := []Role{Push, Read} // whoever pushes may see what becomes of it
	return Rules{
		admin + "ListPools":      look,
		admin + "ListDemand":     look,
		admin + "ListRunners":    look,
		admin + "ListPlugins":    look,
		admin + "ExplainJob":     follow,
		admin + "ListSources":    look,
		admin + "Explain":        look,
		admin + "WhyNot":         follow,
		admin + "ListPriorities": look,
		admin + "SetPriority":    {Operate},

		jobs + "Push":   {Push},
		jobs + "Cancel": {Push},
		jobs + "Retry":  {Operate},
		jobs + "Watch":  follow,
		jobs + "Get":    follow,
		jobs + "List":   follow,

		"/spillway.admission.v1.AdmissionService/*":               {Admit},
		"/spillway.admission.v1.AdmissionService/ListControllers": look,
		"/spillway.debug.v1.DebugService/*":                       {Debug},
		"/spillway.cells.v1.CellService/*":                        {Cell},
		"/spillway.cells.v1.CellService/ListCells":                look,

		pools + "*":              {Coordinate},
		pools + "ListPools":      {Coordinate, Read},
		pools + "RegisterPool":   {Coordinate, Operate},
		pools + "UnregisterPool": {Coordinate, Operate},
		pools + "SubmitJob":      {Coordinate, Push},

		// What there is to call, for grpcurl and the like: no secret, and of use to everybody.
		"/grpc.reflection.v1.ServerReflection/*":      Roles(),
		"/grpc.reflection.v1alpha.ServerReflection/*": Roles(),
	}
}

// Complete returns an error that names each method of the services which has no rule:
// it would be refused to everybody, and nobody meant that.
func (r Rules) Complete(services map[string]grpc.ServiceInfo) error {
	var missing []string
	for service, info := range services {
		for _, method := range info.Methods {
			if name := "/" + service + "/" + method.Name; !r.has(name) {
				missing = append(missing, name)
			}
		}
	}
	slices.Sort(missing)
	var errs []error
	for _, name := range missing {
		errs = append(errs, fmt.Errorf("no rule says who may call %s: add one to access.DefaultRules", name))
	}
	return errors.Join(errs...)
}

func (r Rules) has(method string) bool {
	_, ok := r.For(method)
	return ok
}

// For returns the roles that allow a method, and whether there is a rule for it.
func (r Rules) For(method string) ([]Role, bool) {
	if roles, ok := r[method]; ok {
		return roles, true
	}
	roles, ok := r[method[:strings.LastIndexByte(method, '/')+1]+"*"]
	return roles, ok
}
