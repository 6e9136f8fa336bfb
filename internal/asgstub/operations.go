package asgstub

// operation is one operation of a service. It answers in x.w or x.out.
type operation struct {
	do func(x *exchange) error
}

// operations are all that the stand-in knows, by service.
var operations map[string]map[string]operation

func init() { //nolint:gochecknoinits // the table refers to functions that refer to it
	operations = map[string]map[string]operation{
		serviceASG: {
			"DescribeAutoScalingGroups":           {describeGroups},
			"DescribeAutoScalingInstances":        {describeASGInstances},
			"SetDesiredCapacity":                  {setDesiredCapacity},
			"TerminateInstanceInAutoScalingGroup": {terminateInstance},
			"DescribeScalingActivities":           {describeActivities},
			"SetInstanceProtection":               {setProtection},
			"SetInstanceHealth":                   {setHealth},
			"SuspendProcesses":                    {suspendProcesses},
			"ResumeProcesses":                     {resumeProcesses},
			"DescribeLifecycleHooks":              {describeHooks},
			"PutLifecycleHook":                    {putLifecycleHook},
			"DeleteLifecycleHook":                 {deleteLifecycleHook},
			"RecordLifecycleActionHeartbeat":      {recordHeartbeat},
			"CompleteLifecycleAction":             {completeAction},
			"DescribePolicies":                    {describePolicies},
			"DescribeInstanceRefreshes":           {describeRefreshes},
			"StartInstanceRefresh":                {startInstanceRefresh},
			"DescribeTags":                        {describeTags},
			"CreateOrUpdateTags":                  {createTags},
			"DeleteTags":                          {deleteTags},
			"DescribeWarmPool":                    {describeWarmPool},
			"CreateAutoScalingGroup":              {createGroup},
			"UpdateAutoScalingGroup":              {updateGroup},
			"DeleteAutoScalingGroup":              {deleteGroup},
			"DetachInstances":                     {detachInstances},
			"EnterStandby":                        {enterStandby},
			"ExitStandby":                         {exitStandby},
		},
		serviceEC2: {
			"DescribeInstances":  {describeInstances},
			"TerminateInstances": {terminateInstances},
		},
		serviceSTS: {"GetCallerIdentity": {getCallerIdentity}},
		serviceSQS: {
			"ReceiveMessage":          {receiveMessage},
			"DeleteMessage":           {deleteMessage},
			"DeleteMessageBatch":      {deleteMessageBatch},
			"ChangeMessageVisibility": {changeVisibility},
			"GetQueueUrl":             {getQueueURL},
			"GetQueueAttributes":      {getQueueAttributes},
			"SendMessage":             {sendMessage},
			"CreateQueue":             {createQueue},
		},
		serviceCW: {"GetMetricData": {getMetricData}},
	}
}

func knownOperation(name string) bool {
	for _, ops := range operations {
		if _, ok := ops[name]; ok {
			return true
		}
	}
	return false
}
