package pluginsdk

// CheckGroups is ErrInvalid for more groups than one call may name.
func CheckGroups(groups []string) error {
	return checkCount("groups", len(groups), MaxGroupsPerCall)
}

// CheckInstances is ErrInvalid for more instances than one call may name.
func CheckInstances(ids []string) error {
	return checkCount("instances", len(ids), MaxInstancesPerCall)
}

func checkCount(what string, n, limit int) error {
	if n > limit {
		return Errorf(KindInvalid, "%d %s in one call, the limit is %d", n, what, limit)
	}
	return nil
}

// GroupNames is the setting for the groups that a provider may touch: a list of
// names in which none is there twice, at most as many as one Status may ask for.
// What a name looks like is the provider's to check.
type GroupNames []string

// Check implements [ConfigChecker].
func (g GroupNames) Check(problems *Problems) {
	if len(g) > MaxGroupsPerCall {
		problems.Addf("", "%d, use at most %d", len(g), MaxGroupsPerCall)
		return
	}
	seen := make(map[string]bool, len(g))
	for i, name := range g {
		if seen[name] {
			problems.Addf(pathIndex(i), "the name is there twice")
		}
		seen[name] = true
	}
}

// Set returns the names for look-up.
func (g GroupNames) Set() map[string]bool {
	set := make(map[string]bool, len(g))
	for _, name := range g {
		set[name] = true
	}
	return set
}
