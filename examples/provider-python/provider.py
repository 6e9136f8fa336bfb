"""A Spillway provider plugin in Python, with nothing but grpcio and the .proto.

Its cloud is a folder: a group is a subfolder, an instance a file in it, and the
desired number how many there are. Put your cloud's calls in the place of the class
Cloud; the rest is what any plugin in Python needs.
"""

import json
import os
import sys
import tempfile
import threading
from concurrent import futures

import grpc
from google.protobuf import any_pb2

from spillway.provider.v1 import provider_pb2 as pb

CONTRACT = 2
SCHEMA = json.dumps({
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object", "additionalProperties": False, "required": ["folder", "groups"],
    "properties": {
        "folder": {"type": "string", "minLength": 1, "description": "where the groups are"},
        "groups": {"type": "object", "description": "how many instances each may have",
                   "additionalProperties": {"type": "integer", "minimum": 1}},
    },
})


class Failure(Exception):
    """An error of the contract: a kind, a sentence, and with a conflict a number."""

    def __init__(self, kind, message, observed=0):
        super().__init__(message)
        self.error = pb.ProviderError(kind=kind, message=message, observed=observed)


class Cloud:
    """Groups of files. One lock: a write sees no half of another."""

    def __init__(self, config):
        try:
            settings = json.loads(config)
            unknown = set(settings) - {"folder", "groups"}
            self.folder, self.groups = settings["folder"], settings["groups"]
        except (ValueError, TypeError, KeyError) as e:
            raise Failure(pb.ERROR_KIND_INVALID, f"config: {e!r}") from e
        if unknown:
            raise Failure(pb.ERROR_KIND_INVALID, f"config: unknown {sorted(unknown)}")
        self.lock = threading.Lock()

    def path(self, group, name=""):
        if group not in self.groups:
            raise Failure(pb.ERROR_KIND_NOT_FOUND, f"no group {group}")
        os.makedirs(os.path.join(self.folder, group), exist_ok=True)
        return os.path.join(self.folder, group, name)

    def list(self, group):
        return sorted(n for n in os.listdir(self.path(group)) if not n.startswith("."))

    def status(self, group):
        try:
            return pb.GroupStatus(group=group, desired=len(self.list(group)), max=self.groups[group])
        except Failure as f:
            return pb.GroupStatus(group=group, error=f.error)

    def set_desired(self, group, target, expected):
        with self.lock:
            have = len(self.list(group))
            if have == target:
                return have
            if have != expected:
                raise Failure(pb.ERROR_KIND_CONFLICT, f"desired is {have}", have)
            if not have <= target <= self.groups[group]:
                raise Failure(pb.ERROR_KIND_INVALID, f"desired can be {have} to {self.groups[group]}")
            for _ in range(target - have):
                os.close(tempfile.mkstemp(prefix="vm-", dir=self.path(group))[0])
            return target

    def remove(self, group, ids):
        with self.lock:
            existing = set(self.list(group))
            for name in ids:
                outcome = pb.REMOVE_OUTCOME_ALREADY_GONE
                if name in existing:
                    existing.discard(name)
                    os.remove(self.path(group, name))
                    outcome = pb.REMOVE_OUTCOME_REMOVED
                yield pb.RemoveResult(instance_id=name, outcome=outcome)


class Provider:
    """The methods of ProviderService. What is missing is UNIMPLEMENTED, which the
    host takes for unsupported."""

    def __init__(self, stop):
        self.cloud, self.stop = None, stop

    def Describe(self, _):
        return pb.DescribeResponse(name="python-folder", version="1.0.0", contract_version=CONTRACT, config_schema=SCHEMA)

    def Configure(self, request):
        self.cloud = Cloud(request.config)
        return pb.ConfigureResponse()

    def Status(self, request):
        return pb.StatusResponse(groups=[self.cloud.status(g) for g in request.groups])

    def ListInstances(self, request):
        return pb.ListInstancesResponse(instances=[
            pb.Instance(id=name, state=pb.INSTANCE_STATE_RUNNING) for name in self.cloud.list(request.group)])

    def SetDesired(self, request):
        return pb.SetDesiredResponse(desired=self.cloud.set_desired(request.group, request.target, request.expected))

    def Remove(self, request):
        return pb.RemoveResponse(results=self.cloud.remove(request.group, request.instance_ids))

    def Close(self, _):
        self.stop.set()
        return pb.CloseResponse()


def rpc_status(error):
    """google.rpc.Status{code 1, message 2, details 3}, which is how gRPC carries
    the error of the contract, written by hand: its .proto is no part of grpcio."""
    detail = any_pb2.Any()
    detail.Pack(error)

    def field(number, data):
        size, prefix = len(data), b""
        while size > 0x7F:
            prefix, size = prefix + bytes([size & 0x7F | 0x80]), size >> 7
        return bytes([number << 3 | 2]) + prefix + bytes([size]) + data

    return (b"\x08" + bytes([grpc.StatusCode.UNAVAILABLE.value[0]])
            + field(2, error.message.encode()) + field(3, detail.SerializeToString()))


def answering(method):
    """Turns a method into one that answers a Failure the way the host reads it."""

    def answer(request, context):
        try:
            return method(request)
        except Failure as f:
            error = f.error
        except OSError as e:
            error = pb.ProviderError(kind=pb.ERROR_KIND_TRANSIENT, message=str(e))
        context.set_trailing_metadata((("grpc-status-details-bin", rpc_status(error)),))
        return context.abort(grpc.StatusCode.UNAVAILABLE, error.message)

    return answer


def handlers(provider):
    service = pb.DESCRIPTOR.services_by_name["ProviderService"]
    methods = {}
    for m in service.methods:
        if hasattr(provider, m.name):
            request, response = getattr(pb, m.input_type.name), getattr(pb, m.output_type.name)
            methods[m.name] = grpc.unary_unary_rpc_method_handler(
                answering(getattr(provider, m.name)), request.FromString, response.SerializeToString)
    serving = grpc.unary_unary_rpc_method_handler(lambda _, __: b"\x08\x01")  # HealthCheckResponse{status: SERVING}
    return (grpc.method_handlers_generic_handler(service.full_name, methods),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": serving}))


def end_with_the_host():
    """The host holds the other end of standard input for as long as it lives. A
    plugin that outlives it might still act on the cloud."""
    sys.stdin.buffer.read()
    os._exit(1)


def main():
    if os.environ.get("SPILLWAY_PLUGIN") != "provider":
        sys.exit("This is a Spillway provider plugin: the control plane starts it.\n"
                 "To try it, run: spillwayctl plugin check")
    spoken = [int(v) for v in os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "1").split(",")]
    if CONTRACT not in spoken:
        sys.exit(f"the host speaks {spoken} of the contract, this plugin {CONTRACT}")
    stop = threading.Event()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    server.add_generic_rpc_handlers(handlers(Provider(stop)))
    folder = os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or tempfile.mkdtemp()
    socket = os.path.join(folder, "plugin.sock")
    server.add_insecure_port("unix:" + socket)  # the folder is private: see docs/provider-guide.md
    server.start()
    if os.environ.get("SPILLWAY_PLUGIN_STDIN") == "1":
        threading.Thread(target=end_with_the_host, daemon=True).start()
    print(f"1|{CONTRACT}|unix|{socket}|grpc", flush=True)  # go-plugin's handshake; nothing may be printed before
    stop.wait()
    server.stop(grace=1).wait()


main()
