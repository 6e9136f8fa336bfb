// Package gcemig is the provider for Google Compute Engine's managed instance
// groups, zonal or regional.
//
// This version reads: Status and ListInstances are complete, and every write
// answers ErrUnsupported. It can be used for pools in shadow mode, where decisions
// are made, recorded and shown but not carried out.
//
// It needs compute.instanceGroupManagers.get and .list and takes credentials from
// where every Google Cloud program takes them (Application Default Credentials). It
// retries nothing; that is the control plane's.
//
// A managed instance group has no bounds of its own: its min is 0 and its max what
// Google allows. When instances were launched and whether they are spot is not part
// of what the group tells: both are left at "not known".
package gcemig
