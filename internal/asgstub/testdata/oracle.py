"""Drives the stand-in with boto3 and holds every answer against botocore's models.

The models are the services' own; nobody who wrote the stand-in wrote them. botocore's
parsers drop what they do not know, so the raw answers are walked here: every element
must be a member of its shape, every required member must be there, every enum value
must be known, every length and number within its bounds, every error one that the
operation declares or one of those that are common to all.

usage: oracle.py URL MODE    prints JSON: {"calls": n, "operations": [...], "problems": [...]}
"""
import datetime
import json
import re
import sys
import xml.etree.ElementTree as ET

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

URL = sys.argv[1]
problems, operations, calls = [], set(), 0
COMMON = {"ValidationError", "Throttling", "AccessDenied", "InvalidAction", "MalformedInput", "ExpiredToken",
          "ServiceUnavailable", "InternalFailure"}


def problem(where, text):
    problems.append(f"{where}: {text}")


def scalar(shape, text, where):
    kind = shape.type_name
    meta = shape.metadata
    if kind == "string":
        if shape.enum and text not in shape.enum:
            problem(where, f"{text!r} is not one of {shape.enum}")
        if "max" in meta and len(text) > meta["max"]:
            problem(where, f"{len(text)} characters, at most {meta['max']}: {text!r}")
        if text and "min" in meta and len(text) < meta["min"]:
            problem(where, f"{len(text)} characters, at least {meta['min']}: {text!r}")
        if text and "pattern" in meta and kind == "string" and "\\u" not in meta["pattern"] and not re.search(meta["pattern"], text):
            problem(where, f"{text!r} does not match {meta['pattern']}")
    elif kind in ("integer", "long"):
        n = int(text)
        if "min" in meta and n < meta["min"] or "max" in meta and n > meta["max"]:
            problem(where, f"{n} is out of bounds {meta}")
    elif kind in ("double", "float"):
        float(text)
    elif kind == "boolean":
        if text not in ("true", "false"):
            problem(where, f"{text!r} is not a boolean")
    elif kind == "timestamp":
        datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")


def local(tag):
    return tag.split("}")[-1]


def xml(shape, node, where, ec2=False):
    kind = shape.type_name
    if kind == "structure":
        names = {}
        for name, member in shape.members.items():
            wire = member.serialization.get("name", name)
            if ec2 and "name" not in member.serialization:
                wire = name[0].lower() + name[1:]
            names[wire] = (name, member)
        seen = set()
        for child in node:
            tag = local(child.tag)
            if tag not in names:
                problem(where, f"no member {tag} in {shape.name}")
                continue
            if tag in seen:
                problem(where, f"{tag} twice")
            seen.add(tag)
            xml(names[tag][1], child, f"{where}.{tag}", ec2)
        for need in shape.required_members:
            wire = next(w for w, (n, _) in names.items() if n == need)
            if wire not in seen:
                problem(where, f"required member {need} is missing")
    elif kind == "list":
        item = shape.member.serialization.get("name", "item" if ec2 else "member")
        for i, child in enumerate(node):
            if local(child.tag) != item:
                problem(where, f"item {local(child.tag)}, not {item}")
            xml(shape.member, child, f"{where}[{i}]", ec2)
        if "min" in shape.metadata and len(node) < shape.metadata["min"]:
            problem(where, f"{len(node)} items")
    elif len(node):
        problem(where, f"a {kind} with elements")
    else:
        scalar(shape, node.text or "", where)


def document(shape, value, where):
    kind = shape.type_name
    if kind == "structure":
        for key, v in value.items():
            if key not in shape.members:
                problem(where, f"no member {key} in {shape.name}")
            else:
                document(shape.members[key], v, f"{where}.{key}")
        for need in shape.required_members:
            if need not in value:
                problem(where, f"required member {need} is missing")
    elif kind == "list":
        for i, v in enumerate(value):
            document(shape.member, v, f"{where}[{i}]")
    elif kind == "map":
        for k, v in value.items():
            scalar(shape.key, k, f"{where}.{k}")
            document(shape.value, v, f"{where}.{k}")
    elif kind == "string":
        if not isinstance(value, str):
            problem(where, f"{value!r} is not a text")
        else:
            scalar(shape, value, where)


def check(service, operation, http, parsed):
    global calls
    calls += 1
    operations.add(f"{service}.{operation.name}")
    where, body = f"{service}.{operation.name}", http.content
    if not parsed["ResponseMetadata"].get("RequestId"):
        problem(where, "no request id")
    if http.status_code >= 300:
        code = parsed["Error"]["Code"]
        known = COMMON | {s.error_code for s in operation.error_shapes} | {s.name for s in operation.error_shapes}
        if service in ("autoscaling",) and code not in known:
            problem(where, f"error {code} is not declared")
        for s in operation.error_shapes:
            status = s.metadata.get("error", {}).get("httpStatusCode")
            if code == s.error_code and status and status != http.status_code:
                problem(where, f"error {code} has status {http.status_code}, not {status}")
        return
    protocol = operation.service_model.resolved_protocol
    if protocol in ("query", "ec2"):
        root = ET.fromstring(body)
        if local(root.tag) != operation.name + "Response":
            problem(where, f"root {root.tag}")
        if root.tag.split("}")[0][1:].rstrip("/") != operation.service_model.metadata["xmlNamespace"].rstrip("/"):
            problem(where, f"namespace of {root.tag}")
        out = operation.output_shape
        if protocol == "ec2":
            kids = [c for c in root if local(c.tag) != "requestId"]
            box = ET.Element("box")
            box.extend(kids)
            if out is not None:
                xml(out, box, where, ec2=True)
            return
        wrapper = out.serialization.get("resultWrapper") if out is not None else None
        for child in root:
            if local(child.tag) == "ResponseMetadata":
                continue
            if local(child.tag) != wrapper:
                problem(where, f"{local(child.tag)}, not {wrapper}")
            else:
                xml(out, child, where)
        if wrapper and not any(local(c.tag) == wrapper for c in root):
            problem(where, f"no {wrapper}")
    elif protocol == "json":
        if operation.output_shape is not None:
            document(operation.output_shape, json.loads(body), where)
    elif protocol == "smithy-rpc-v2-cbor":
        if http.headers.get("smithy-protocol") != "rpc-v2-cbor":
            problem(where, "no smithy-protocol header")
        document(operation.output_shape, {k: v for k, v in parsed.items() if k != "ResponseMetadata"}, where)


def client(name):
    s = boto3.session.Session(aws_access_key_id="boto", aws_secret_access_key="x", region_name="us-east-1")
    c = s.client(name, endpoint_url=URL, config=Config(retries={"max_attempts": 0, "mode": "standard"}))

    def after(http_response, parsed, model, **_):
        check(name, model, http_response, parsed)

    c.meta.events.register("after-call", after)
    return c


def fails(code, f, **kw):
    try:
        f(**kw)
    except ClientError as e:
        if e.response["Error"]["Code"] != code:
            problem(f.__name__, f"error {e.response['Error']}, not {code}")
        return e.response["Error"]["Message"]
    problem(f.__name__, f"no error, {code} was expected")


def expect(what, got, want):
    if got != want:
        problem(what, f"{got!r}, not {want!r}")


asg, ec2, sts, sqs, cw = (client(n) for n in ("autoscaling", "ec2", "sts", "sqs", "cloudwatch"))


def groups():
    asg.create_auto_scaling_group(
        AutoScalingGroupName="made", MinSize=1, MaxSize=4, DesiredCapacity=2, AvailabilityZones=["us-east-1a", "us-east-1b"],
        LaunchTemplate={"LaunchTemplateName": "runner", "Version": "$Latest"}, NewInstancesProtectedFromScaleIn=True,
        Tags=[{"Key": "a&b", "Value": "<c>\"'", "PropagateAtLaunch": True}],
        LifecycleHookSpecificationList=[{"LifecycleHookName": "drain", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                                         "HeartbeatTimeout": 60, "DefaultResult": "CONTINUE"}])
    fails("AlreadyExists", asg.create_auto_scaling_group, AutoScalingGroupName="made", MinSize=0, MaxSize=1,
          AvailabilityZones=["us-east-1a"], LaunchTemplate={"LaunchTemplateName": "runner"})
    g = asg.describe_auto_scaling_groups(AutoScalingGroupNames=["made"])["AutoScalingGroups"][0]
    expect("tag", [(t["Key"], t["Value"]) for t in g["Tags"]], [("a&b", "<c>\"'")])
    expect("states", [i["LifecycleState"] for i in g["Instances"]], ["InService"] * 2)
    asg.update_auto_scaling_group(AutoScalingGroupName="made", MaxSize=6, DefaultCooldown=10, TerminationPolicies=["OldestInstance"])
    asg.set_desired_capacity(AutoScalingGroupName="made", DesiredCapacity=3, HonorCooldown=False)
    fails("ValidationError", asg.set_desired_capacity, AutoScalingGroupName="made", DesiredCapacity=7)
    fails("ScalingActivityInProgress", asg.set_desired_capacity, AutoScalingGroupName="made", DesiredCapacity=4, HonorCooldown=True)
    asg.describe_auto_scaling_groups(Filters=[{"Name": "tag:a&b", "Values": ["<c>\"'"]}], IncludeInstances=False)
    for page in asg.get_paginator("describe_auto_scaling_groups").paginate(PaginationConfig={"PageSize": 1}):
        pass
    fails("InvalidNextToken", asg.describe_auto_scaling_groups, NextToken="x")
    asg.create_or_update_tags(Tags=[{"ResourceId": "made", "ResourceType": "auto-scaling-group", "Key": "k", "Value": "v", "PropagateAtLaunch": False}])
    expect("tags", [t["Key"] for t in asg.describe_tags(Filters=[{"Name": "auto-scaling-group", "Values": ["made"]}])["Tags"]], ["a&b", "k"])
    asg.delete_tags(Tags=[{"ResourceId": "made", "ResourceType": "auto-scaling-group", "Key": "k"}])
    asg.suspend_processes(AutoScalingGroupName="made", ScalingProcesses=["AZRebalance", "Launch"])
    asg.describe_auto_scaling_groups()
    asg.resume_processes(AutoScalingGroupName="made")
    asg.describe_policies(AutoScalingGroupName="full")
    asg.describe_warm_pool(AutoScalingGroupName="full")
    asg.describe_warm_pool(AutoScalingGroupName="made")
    asg.start_instance_refresh(AutoScalingGroupName="made")
    fails("InstanceRefreshInProgress", asg.start_instance_refresh, AutoScalingGroupName="made")
    asg.describe_instance_refreshes(AutoScalingGroupName="made")


def instances():
    ids = [i["InstanceId"] for i in asg.describe_auto_scaling_groups(AutoScalingGroupNames=["made"])["AutoScalingGroups"][0]["Instances"]]
    asg.describe_auto_scaling_instances(InstanceIds=ids)
    asg.describe_auto_scaling_instances(MaxRecords=1)
    asg.set_instance_protection(AutoScalingGroupName="made", InstanceIds=ids, ProtectedFromScaleIn=False)
    asg.set_instance_protection(AutoScalingGroupName="made", InstanceIds=ids, ProtectedFromScaleIn=True)
    fails("ValidationError", asg.set_instance_protection, AutoScalingGroupName="made", InstanceIds=["i-0"], ProtectedFromScaleIn=True)
    ids = [i["InstanceId"] for i in asg.describe_auto_scaling_groups(AutoScalingGroupNames=["made"])["AutoScalingGroups"][0]["Instances"]
           if i["LifecycleState"] == "InService"]
    asg.enter_standby(AutoScalingGroupName="made", InstanceIds=ids[:1], ShouldDecrementDesiredCapacity=True)
    asg.exit_standby(AutoScalingGroupName="made", InstanceIds=ids[:1])
    asg.set_instance_health(InstanceId=ids[0], HealthStatus="Healthy")
    a = asg.terminate_instance_in_auto_scaling_group(InstanceId=ids[0], ShouldDecrementDesiredCapacity=True)["Activity"]
    expect("activity", a["StatusCode"], "MidLifecycleAction")
    asg.describe_lifecycle_hooks(AutoScalingGroupName="made")
    asg.put_lifecycle_hook(AutoScalingGroupName="made", LifecycleHookName="drain", HeartbeatTimeout=120)
    asg.record_lifecycle_action_heartbeat(AutoScalingGroupName="made", LifecycleHookName="drain", InstanceId=ids[0])
    asg.complete_lifecycle_action(AutoScalingGroupName="made", LifecycleHookName="drain", InstanceId=ids[0], LifecycleActionResult="CONTINUE")
    fails("ValidationError", asg.complete_lifecycle_action, AutoScalingGroupName="made", LifecycleHookName="drain",
          InstanceId=ids[0], LifecycleActionResult="CONTINUE")
    asg.delete_lifecycle_hook(AutoScalingGroupName="made", LifecycleHookName="drain")
    asg.detach_instances(AutoScalingGroupName="made", InstanceIds=ids[1:2], ShouldDecrementDesiredCapacity=False)
    fails("ValidationError", asg.terminate_instance_in_auto_scaling_group, InstanceId="i-00000000000000000", ShouldDecrementDesiredCapacity=True)
    asg.set_desired_capacity(AutoScalingGroupName="broken", DesiredCapacity=2)
    failed = asg.describe_scaling_activities(AutoScalingGroupName="broken")["Activities"][0]
    expect("failed", (failed["StatusCode"], failed["StatusMessage"].endswith("Launching EC2 instance failed.")), ("Failed", True))
    asg.describe_scaling_activities(MaxRecords=2, Filters=[{"Name": "Status", "Values": ["Failed"]}])
    asg.describe_scaling_activities()
    r = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])["Reservations"]
    expect("spot", {i.get("InstanceLifecycle") for x in r for i in x["Instances"]}, {None, "spot"})
    r = ec2.describe_instances(InstanceIds=[ids[1]])["Reservations"][0]["Instances"][0]
    expect("launch time", r["LaunchTime"].tzinfo is not None, True)
    fails("InvalidInstanceID.NotFound", ec2.describe_instances, InstanceIds=["i-00000000000000000"])
    ec2.terminate_instances(InstanceIds=[ids[1]])
    fails("ResourceInUse", asg.delete_auto_scaling_group, AutoScalingGroupName="made")
    asg.delete_auto_scaling_group(AutoScalingGroupName="made", ForceDelete=True)
    expect("account", sts.get_caller_identity()["Account"], "123456789012")


def queues():
    url = sqs.get_queue_url(QueueName="events")["QueueUrl"]
    fails("AWS.SimpleQueueService.NonExistentQueue", sqs.get_queue_url, QueueName="no")
    got = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30, AttributeNames=["All"])["Messages"]
    kinds = [json.loads(m["Body"])["detail-type"] for m in got]
    expect("events", kinds[0] in ("EC2 Instance Launch Successful", "EC2 Instance State-change Notification"), True)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got[0]["ReceiptHandle"], VisibilityTimeout=60)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got[0]["ReceiptHandle"])
    done = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(got[1:])])
    expect("batch", len(done["Successful"]), len(got) - 1)
    own = sqs.create_queue(QueueName="own")["QueueUrl"]
    sent = sqs.send_message(QueueUrl=own, MessageBody="hello")  # boto3 checks the MD5 itself
    back = sqs.receive_message(QueueUrl=own, WaitTimeSeconds=1)["Messages"][0]
    expect("message", (back["MessageId"], back["Body"]), (sent["MessageId"], "hello"))
    expect("hidden", "Messages" in sqs.receive_message(QueueUrl=own), False)
    sqs.get_queue_attributes(QueueUrl=own, AttributeNames=["All"])


def metrics():
    now = datetime.datetime.fromtimestamp(1_772_366_400, datetime.timezone.utc)
    q = {"Id": "q", "MetricStat": {"Metric": {"Namespace": "Spillway", "MetricName": "Queue", "Dimensions": [{"Name": "pool", "Value": "a"}]},
                                   "Period": 60, "Stat": "Maximum"}}
    got = cw.get_metric_data(MetricDataQueries=[q], StartTime=now, EndTime=now + datetime.timedelta(minutes=3), ScanBy="TimestampAscending")
    r = got["MetricDataResults"][0]
    expect("values", r["Values"], [3.0, 5.0])
    expect("times", [int((t - now).total_seconds()) for t in r["Timestamps"]], [0, 60])
    q["MetricStat"]["Stat"] = "p99"
    fails("InvalidParameterValue", cw.get_metric_data, MetricDataQueries=[q], StartTime=now, EndTime=now + datetime.timedelta(minutes=3))


for part in (groups, instances, queues, metrics):
    part()
print(json.dumps({"calls": calls, "operations": sorted(operations), "problems": problems}))
