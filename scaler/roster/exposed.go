package roster

// Exposed reports whether a machine of the pool is on an instance that the group
// doesn't show in service: its list lags, or it takes the instance for one that still
// boots. Protection begins in service, and what is not listed is not counted: a group
// whose number is lowered to what it shows would end such an instance, and there may
// be a job on it.
func (r *Roster) Exposed() bool {
	for _, in := range r.Instances {
		registered := in.Machine != "" && in.Phase != Removing && in.Phase != Zombie
		if registered && (!in.Listed || in.absent || in.creating || in.Hook == LaunchHook) {
			return true
		}
	}
	return false
}
