package migstub

// The resources as JSON, with the names of the discovery document's schemas. Ids
// are 64 bit numbers in strings; fields that are there even when they are zero
// have no omitempty.

type groupResource struct {
	Kind                        string              `json:"kind"`
	ID                          string              `json:"id"`
	CreationTimestamp           string              `json:"creationTimestamp"`
	Name                        string              `json:"name"`
	Zone                        string              `json:"zone,omitempty"`
	Region                      string              `json:"region,omitempty"`
	DistributionPolicy          *distributionPolicy `json:"distributionPolicy,omitempty"`
	InstanceTemplate            string              `json:"instanceTemplate"`
	Versions                    []groupVersion      `json:"versions"`
	InstanceGroup               string              `json:"instanceGroup"`
	BaseInstanceName            string              `json:"baseInstanceName"`
	Fingerprint                 string              `json:"fingerprint"`
	CurrentActions              actionsSummary      `json:"currentActions"`
	Status                      groupStatus         `json:"status"`
	TargetSize                  int                 `json:"targetSize"`
	TargetSuspendedSize         int                 `json:"targetSuspendedSize"`
	TargetStoppedSize           int                 `json:"targetStoppedSize"`
	SelfLink                    string              `json:"selfLink"`
	AutoHealingPolicies         []autoHealingPolicy `json:"autoHealingPolicies,omitempty"`
	UpdatePolicy                updatePolicy        `json:"updatePolicy"`
	StatefulPolicy              *statefulPolicy     `json:"statefulPolicy,omitempty"`
	InstanceLifecyclePolicy     lifecyclePolicy     `json:"instanceLifecyclePolicy"`
	AllInstancesConfig          *allInstancesConfig `json:"allInstancesConfig,omitempty"`
	ListManagedInstancesResults string              `json:"listManagedInstancesResults"`
}

func (g groupResource) key() (string, string) { return g.Name, g.CreationTimestamp }

type instanceGroupResource struct {
	Kind              string `json:"kind"`
	ID                string `json:"id"`
	CreationTimestamp string `json:"creationTimestamp"`
	Name              string `json:"name"`
	Zone              string `json:"zone,omitempty"`
	Region            string `json:"region,omitempty"`
	Size              int    `json:"size"`
	SelfLink          string `json:"selfLink"`
}

func (g instanceGroupResource) key() (string, string) { return g.Name, g.CreationTimestamp }

type distributionPolicy struct {
	Zones       []zoneConfiguration `json:"zones"`
	TargetShape string              `json:"targetShape"`
}

type zoneConfiguration struct {
	Zone string `json:"zone"`
}

type groupVersion struct {
	Name             string        `json:"name"`
	InstanceTemplate string        `json:"instanceTemplate"`
	TargetSize       fixedOrNumber `json:"targetSize"`
}

type fixedOrNumber struct {
	Fixed      int `json:"fixed"`
	Calculated int `json:"calculated"`
}

type actionsSummary struct {
	None                   int `json:"none"`
	Creating               int `json:"creating"`
	CreatingWithoutRetries int `json:"creatingWithoutRetries"`
	Recreating             int `json:"recreating"`
	Deleting               int `json:"deleting"`
	Abandoning             int `json:"abandoning"`
	Restarting             int `json:"restarting"`
	Refreshing             int `json:"refreshing"`
	Verifying              int `json:"verifying"`
}

type groupStatus struct {
	IsStable           bool                   `json:"isStable"`
	Autoscaler         string                 `json:"autoscaler,omitempty"`
	VersionTarget      versionTarget          `json:"versionTarget"`
	Stateful           stateful               `json:"stateful"`
	AllInstancesConfig *allInstancesEffective `json:"allInstancesConfig,omitempty"`
}

type versionTarget struct {
	IsReached bool `json:"isReached"`
}

type stateful struct {
	HasStatefulConfig bool `json:"hasStatefulConfig"`
}

type allInstancesEffective struct {
	Effective       bool   `json:"effective"`
	CurrentRevision string `json:"currentRevision"`
}

type autoHealingPolicy struct {
	HealthCheck     string `json:"healthCheck"`
	InitialDelaySec int    `json:"initialDelaySec"`
}

type updatePolicy struct {
	Type                        string        `json:"type"`
	InstanceRedistributionType  string        `json:"instanceRedistributionType,omitempty"`
	MinimalAction               string        `json:"minimalAction"`
	ReplacementMethod           string        `json:"replacementMethod"`
	MostDisruptiveAllowedAction string        `json:"mostDisruptiveAllowedAction"`
	MaxSurge                    fixedOrNumber `json:"maxSurge"`
	MaxUnavailable              fixedOrNumber `json:"maxUnavailable"`
}

type statefulPolicy struct {
	PreservedState preservedPolicy `json:"preservedState"`
}

type preservedPolicy struct {
	Disks map[string]preservedDisk `json:"disks"`
}

type preservedDisk struct {
	AutoDelete string `json:"autoDelete"`
}

type lifecyclePolicy struct {
	DefaultActionOnFailure string `json:"defaultActionOnFailure"`
	OnFailedHealthCheck    string `json:"onFailedHealthCheck"`
	ForceUpdateOnRepair    string `json:"forceUpdateOnRepair"`
}

type allInstancesConfig struct {
	Properties propertiesPatch `json:"properties"`
}

type propertiesPatch struct {
	Labels map[string]string `json:"labels"`
}

type managedResource struct {
	Instance       string           `json:"instance"`
	Name           string           `json:"name"`
	ID             string           `json:"id,omitempty"`
	InstanceStatus string           `json:"instanceStatus,omitempty"`
	CurrentAction  string           `json:"currentAction"`
	TargetStatus   string           `json:"targetStatus"`
	LastAttempt    *lastAttempt     `json:"lastAttempt,omitempty"`
	Version        managedVersion   `json:"version"`
	InstanceHealth []instanceHealth `json:"instanceHealth,omitempty"`
}

type managedVersion struct {
	Name             string `json:"name"`
	InstanceTemplate string `json:"instanceTemplate"`
}

type lastAttempt struct {
	Errors resourceErrors `json:"errors"`
}

type resourceErrors struct {
	Errors []resourceError `json:"errors"`
}

type resourceError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type instanceHealth struct {
	HealthCheck         string `json:"healthCheck"`
	DetailedHealthState string `json:"detailedHealthState"`
}

type managedError struct {
	Error                 resourceError `json:"error"`
	InstanceActionDetails actionDetails `json:"instanceActionDetails"`
	Timestamp             string        `json:"timestamp"`
}

type actionDetails struct {
	Action   string         `json:"action"`
	Instance string         `json:"instance"`
	Version  managedVersion `json:"version"`
}

type operationResource struct {
	Kind                string          `json:"kind"`
	ID                  string          `json:"id"`
	Name                string          `json:"name"`
	Zone                string          `json:"zone,omitempty"`
	Region              string          `json:"region,omitempty"`
	OperationType       string          `json:"operationType"`
	TargetLink          string          `json:"targetLink"`
	TargetID            string          `json:"targetId"`
	Status              string          `json:"status"`
	User                string          `json:"user"`
	Progress            int             `json:"progress"`
	InsertTime          string          `json:"insertTime"`
	StartTime           string          `json:"startTime,omitempty"`
	EndTime             string          `json:"endTime,omitempty"`
	Error               *resourceErrors `json:"error,omitempty"`
	HTTPErrorStatusCode int             `json:"httpErrorStatusCode,omitempty"`
	HTTPErrorMessage    string          `json:"httpErrorMessage,omitempty"`
	SelfLink            string          `json:"selfLink"`
}

func (o operationResource) key() (string, string) { return o.Name, o.InsertTime }

type instanceResource struct {
	Kind               string             `json:"kind"`
	ID                 string             `json:"id"`
	CreationTimestamp  string             `json:"creationTimestamp"`
	LastStartTimestamp string             `json:"lastStartTimestamp"`
	Name               string             `json:"name"`
	Zone               string             `json:"zone"`
	MachineType        string             `json:"machineType"`
	Status             string             `json:"status"`
	Labels             map[string]string  `json:"labels,omitempty"`
	Metadata           instanceMetadata   `json:"metadata"`
	Scheduling         scheduling         `json:"scheduling"`
	NetworkInterfaces  []networkInterface `json:"networkInterfaces"`
	SelfLink           string             `json:"selfLink"`
}

type networkInterface struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	NetworkIP string `json:"networkIP"`
}

func (i instanceResource) key() (string, string) { return i.Name, i.CreationTimestamp }

type instanceMetadata struct {
	Kind  string         `json:"kind"`
	Items []metadataItem `json:"items,omitempty"`
}

type metadataItem struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type scheduling struct {
	OnHostMaintenance         string `json:"onHostMaintenance"`
	AutomaticRestart          bool   `json:"automaticRestart"`
	Preemptible               bool   `json:"preemptible"`
	ProvisioningModel         string `json:"provisioningModel"`
	InstanceTerminationAction string `json:"instanceTerminationAction,omitempty"`
}

type autoscalerResource struct {
	Kind              string            `json:"kind"`
	ID                string            `json:"id"`
	CreationTimestamp string            `json:"creationTimestamp"`
	Name              string            `json:"name"`
	Zone              string            `json:"zone,omitempty"`
	Region            string            `json:"region,omitempty"`
	Target            string            `json:"target"`
	AutoscalingPolicy autoscalingPolicy `json:"autoscalingPolicy"`
	RecommendedSize   int               `json:"recommendedSize"`
	Status            string            `json:"status"`
	SelfLink          string            `json:"selfLink"`
}

func (a autoscalerResource) key() (string, string) { return a.Name, a.CreationTimestamp }

type autoscalingPolicy struct {
	MinNumReplicas int    `json:"minNumReplicas"`
	MaxNumReplicas int    `json:"maxNumReplicas"`
	Mode           string `json:"mode"`
}

type templateResource struct {
	Kind              string             `json:"kind"`
	ID                string             `json:"id"`
	CreationTimestamp string             `json:"creationTimestamp"`
	Name              string             `json:"name"`
	Properties        templateProperties `json:"properties"`
	SelfLink          string             `json:"selfLink"`
}

func (t templateResource) key() (string, string) { return t.Name, t.CreationTimestamp }

type templateProperties struct {
	MachineType string            `json:"machineType"`
	Labels      map[string]string `json:"labels,omitempty"`
	Scheduling  scheduling        `json:"scheduling"`
}

type placeResource struct {
	Kind     string   `json:"kind"`
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	Region   string   `json:"region,omitempty"` // of a zone
	Zones    []string `json:"zones,omitempty"`  // of a region
	SelfLink string   `json:"selfLink"`
}

func (p placeResource) key() (string, string) { return p.Name, "" }

// list is the answer of every list of resources.
type list[T any] struct {
	Kind          string `json:"kind"`
	ID            string `json:"id"`
	Items         []T    `json:"items,omitempty"`
	NextPageToken string `json:"nextPageToken,omitempty"`
	SelfLink      string `json:"selfLink"`
}

// aggregated is the answer of every list over all zones and regions.
type aggregated struct {
	Kind          string         `json:"kind"`
	ID            string         `json:"id"`
	Items         map[string]any `json:"items,omitempty"` // by zones/Z and regions/R
	NextPageToken string         `json:"nextPageToken,omitempty"`
	SelfLink      string         `json:"selfLink"`
}

type managedList struct {
	ManagedInstances []managedResource `json:"managedInstances,omitempty"`
	NextPageToken    string            `json:"nextPageToken,omitempty"`
}

type errorList struct {
	Items         []managedError `json:"items,omitempty"`
	NextPageToken string         `json:"nextPageToken,omitempty"`
}
