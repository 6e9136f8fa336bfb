"""Sends the same requests to the stand-in and to moto and compares the answers.

Instance ids become names in the order in which they first appear; times, ARNs, request
ids and what only one of the two models are left out. So is what moto 5.2 does otherwise
than the documentation says: creating a group twice, deleting one that has instances
without force or with it (they run on), and naming a group that is not there.

usage: differential.py STUB MOTO    prints JSON: {"compared": n, "problems": [...]}
"""
import json
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

problems, compared = [], 0


class Side:
    def __init__(self, url):
        s = boto3.session.Session(aws_access_key_id="boto", aws_secret_access_key="x", region_name="us-east-1")
        cfg = Config(retries={"max_attempts": 0, "mode": "standard"})
        self.asg = s.client("autoscaling", endpoint_url=url, config=cfg)
        self.ec2 = s.client("ec2", endpoint_url=url, config=cfg)
        self.ids, self.token = [], None

    def name(self, instance):
        if instance not in self.ids:
            self.ids.append(instance)
        return f"#{self.ids.index(instance)}"

    def instance(self, number):
        return self.ids[number]


stub, moto = Side(sys.argv[1]), Side(sys.argv[2])
moto.ec2.create_launch_template(LaunchTemplateName="runner", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "m5.large"})


def both(what, f):
    """f(side) is done on both sides; equal values or equal error codes are expected."""
    global compared
    compared += 1
    got = []
    for side in (stub, moto):
        try:
            got.append(f(side))
        except ClientError as e:
            got.append("error " + e.response["Error"]["Code"])
    if got[0] != got[1]:
        problems.append(f"{what}: stand-in {got[0]!r}, moto {got[1]!r}")
    return got[0]


GROUP = ("AutoScalingGroupName", "MinSize", "MaxSize", "DesiredCapacity", "DefaultCooldown", "HealthCheckType",
         "NewInstancesProtectedFromScaleIn", "TerminationPolicies", "CapacityRebalance")


def view(side, **kw):
    out = []
    for g in side.asg.describe_auto_scaling_groups(**kw)["AutoScalingGroups"]:
        # moto lists instances in another order after changes: the order of launch is what names them
        inst = [(side.name(i["InstanceId"]), i["LifecycleState"], i["HealthStatus"], i["ProtectedFromScaleIn"], i["InstanceType"])
                for i in g["Instances"]]
        out.append(([g[k] for k in GROUP], sorted(g["AvailabilityZones"]), sorted(inst),
                    sorted((t["Key"], t["Value"], t["PropagateAtLaunch"]) for t in g["Tags"]),
                    sorted(p["ProcessName"] for p in g["SuspendedProcesses"])))
    return out


def create(side, name, **kw):
    args = dict(AutoScalingGroupName=name, MinSize=0, MaxSize=5, AvailabilityZones=["us-east-1a"],
                LaunchTemplate={"LaunchTemplateName": "runner", "Version": "$Latest"})
    side.asg.create_auto_scaling_group(**{**args, **kw})


def state(what, name="ci"):
    return both(what, lambda s: view(s, AutoScalingGroupNames=[name]))


both("create", lambda s: create(s, "ci", DesiredCapacity=3, NewInstancesProtectedFromScaleIn=True,
                                Tags=[{"Key": "owner", "Value": "spillway", "PropagateAtLaunch": True}]))
state("created")
both("create without a launch template", lambda s: s.asg.create_auto_scaling_group(AutoScalingGroupName="x", MinSize=0, MaxSize=1, AvailabilityZones=["us-east-1a"]))
both("set 5", lambda s: s.asg.set_desired_capacity(AutoScalingGroupName="ci", DesiredCapacity=5, HonorCooldown=False) and None)
state("five")
both("terminate with decrement", lambda s: s.asg.terminate_instance_in_auto_scaling_group(
    InstanceId=s.instance(1), ShouldDecrementDesiredCapacity=True)["Activity"]["AutoScalingGroupName"])
state("four")
both("terminate without decrement", lambda s: s.asg.terminate_instance_in_auto_scaling_group(
    InstanceId=s.instance(0), ShouldDecrementDesiredCapacity=False) and None)
state("replaced")
both("terminate an unknown one", lambda s: s.asg.describe_auto_scaling_instances(InstanceIds=["i-00000000000000000"])["AutoScalingInstances"])
both("instances", lambda s: sorted((s.name(i["InstanceId"]), i["AutoScalingGroupName"], i["LifecycleState"], i["ProtectedFromScaleIn"])
                                   for i in s.asg.describe_auto_scaling_instances()["AutoScalingInstances"]))
both("unprotect", lambda s: s.asg.set_instance_protection(AutoScalingGroupName="ci", InstanceIds=[s.instance(2), s.instance(3)], ProtectedFromScaleIn=False) and None)
state("two unprotected")
both("set 3", lambda s: s.asg.set_desired_capacity(AutoScalingGroupName="ci", DesiredCapacity=3, HonorCooldown=False) and None)
both("unprotected count after scale-in", lambda s: [
    sum(1 for i in g["Instances"] if i["ProtectedFromScaleIn"] == want)
    for g in s.asg.describe_auto_scaling_groups(AutoScalingGroupNames=["ci"])["AutoScalingGroups"] for want in (True, False)])
both("bounds below desired", lambda s: s.asg.update_auto_scaling_group(AutoScalingGroupName="ci", MaxSize=2) and
     [(g["MinSize"], g["MaxSize"], g["DesiredCapacity"]) for g in s.asg.describe_auto_scaling_groups()["AutoScalingGroups"]])
both("bounds above desired", lambda s: s.asg.update_auto_scaling_group(AutoScalingGroupName="ci", MinSize=4, MaxSize=6) and
     [(g["MinSize"], g["MaxSize"], g["DesiredCapacity"], len(g["Instances"])) for g in s.asg.describe_auto_scaling_groups()["AutoScalingGroups"]])
both("suspend", lambda s: s.asg.suspend_processes(AutoScalingGroupName="ci", ScalingProcesses=["AZRebalance", "Launch"]) and
     [sorted(p["ProcessName"] for p in g["SuspendedProcesses"]) for g in s.asg.describe_auto_scaling_groups()["AutoScalingGroups"]])
both("resume", lambda s: s.asg.resume_processes(AutoScalingGroupName="ci", ScalingProcesses=["Launch"]) and
     [sorted(p["ProcessName"] for p in g["SuspendedProcesses"]) for g in s.asg.describe_auto_scaling_groups()["AutoScalingGroups"]])
both("tag", lambda s: s.asg.create_or_update_tags(Tags=[
    {"ResourceId": "ci", "ResourceType": "auto-scaling-group", "Key": k, "Value": v, "PropagateAtLaunch": False}
    for k, v in (("owner", "me"), ("pool", "a<b"))]) and None)
both("tags", lambda s: sorted((t["ResourceId"], t["Key"], t["Value"], t["PropagateAtLaunch"]) for t in s.asg.describe_tags(
    Filters=[{"Name": "auto-scaling-group", "Values": ["ci"]}])["Tags"]))
both("tags by key", lambda s: [t["Value"] for t in s.asg.describe_tags(Filters=[{"Name": "key", "Values": ["pool"]}])["Tags"]])
both("untag", lambda s: s.asg.delete_tags(Tags=[{"ResourceId": "ci", "ResourceType": "auto-scaling-group", "Key": "pool"}]) and
     [t["Key"] for t in s.asg.describe_tags()["Tags"]])
for n in range(7):
    both(f"create g{n}", lambda s: create(s, f"g{n}"))
both("pages", lambda s: [sorted(g["AutoScalingGroupName"] for g in page["AutoScalingGroups"]).__len__() for page in
                         s.asg.get_paginator("describe_auto_scaling_groups").paginate(PaginationConfig={"PageSize": 3})])
both("all names", lambda s: sorted(g["AutoScalingGroupName"] for page in s.asg.get_paginator("describe_auto_scaling_groups").paginate(
    PaginationConfig={"PageSize": 3}) for g in page["AutoScalingGroups"]))
both("named ones", lambda s: sorted(g["AutoScalingGroupName"] for g in s.asg.describe_auto_scaling_groups(
    AutoScalingGroupNames=["g1", "nobody", "g5"])["AutoScalingGroups"]))
both("by tag", lambda s: [g["AutoScalingGroupName"] for g in s.asg.describe_auto_scaling_groups(
    Filters=[{"Name": "tag:owner", "Values": ["me"]}])["AutoScalingGroups"]])
both("delete by force", lambda s: s.asg.delete_auto_scaling_group(AutoScalingGroupName="ci", ForceDelete=True) and None)
both("gone", lambda s: s.asg.describe_auto_scaling_groups(AutoScalingGroupNames=["ci"])["AutoScalingGroups"])
print(json.dumps({"compared": compared, "problems": problems}))
