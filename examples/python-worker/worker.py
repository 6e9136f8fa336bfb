"""A worker of a Spillway pool: asks for jobs, runs their scripts, reports how they ended.

It needs grpcio and protobuf, and nothing made beforehand: the few messages of
coordinator.PoolCoordinator that a worker speaks stand below. A test holds them to
proto/coordinator/coordinator.proto.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HEARTBEAT_EVERY = 15    # seconds
POLL_TIMEOUT = 40       # seconds; the coordinator answers well before
REPORT_TIMEOUT = 30     # seconds
DRAIN_AT_MOST = 300     # seconds that a job may go on after SIGTERM
END_GRACE = 5           # seconds between SIGTERM and SIGKILL for a job
TIME_LIMIT_EXIT_CODE = 124
OUTPUT_BYTES = 64 << 10  # of each output, the end of it: more is not kept
BACKOFF = (1, 30)       # seconds, first and most

# name of a message: its fields, as name: (number, type). env_variables is a map.
MESSAGES = {
    "SendHeartbeatRequest": {"runner_id": (1, "string"), "pool_name": (2, "string"), "status": (3, "RunnerStatus"),
                             "active_job_count": (4, "int32"), "instance_id": (5, "string"), "draining": (6, "bool")},
    "SendHeartbeatResponse": {"acknowledged": (1, "bool"), "draining": (2, "bool"), "terminate": (3, "bool"),
                              "reason": (4, "string"), "ended_job_ids": (5, "repeated string")},
    "PollJobRequest": {"runner_id": (1, "string"), "pool_name": (2, "string"), "instance_id": (3, "string")},
    "PollJobResponse": {"has_job": (1, "bool"), "job": (2, "Job")},
    "Job": {"id": (1, "string"), "project_id": (2, "int64"), "script": (3, "string"), "env_variables": (4, "map"),
            "timeout_seconds": (5, "int32"), "attempt": (6, "int32")},
    "ReportJobResultRequest": {"job_id": (1, "string"), "runner_id": (2, "string"), "success": (3, "bool"), "stdout": (4, "string"),
                               "stderr": (5, "string"), "exit_code": (6, "int32"), "attempt": (7, "int32")},
    "ReportJobResultResponse": {"acknowledged": (1, "bool")},
}
IDLE, BUSY = 1, 2  # RunnerStatus


def make_messages():
    """The classes of MESSAGES."""
    field = descriptor_pb2.FieldDescriptorProto
    kinds = {"string": field.TYPE_STRING, "bool": field.TYPE_BOOL, "int32": field.TYPE_INT32, "int64": field.TYPE_INT64}
    file = descriptor_pb2.FileDescriptorProto(name="worker/coordinator.proto", package="coordinator", syntax="proto3")
    status = file.enum_type.add(name="RunnerStatus")
    for number, name in enumerate(("UNSPECIFIED", "IDLE", "BUSY")):
        status.value.add(name="RUNNER_STATUS_" + name, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            f = message.field.add(name=field_name, number=number, label=field.LABEL_OPTIONAL)
            if kind == "map":  # a map is a list of entries
                entry = message.nested_type.add(name="EnvVariablesEntry")
                entry.options.map_entry = True
                for n, part in enumerate(("key", "value"), 1):
                    entry.field.add(name=part, number=n, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
                f.label, f.type, f.type_name = field.LABEL_REPEATED, field.TYPE_MESSAGE, f".coordinator.{name}.EnvVariablesEntry"
                continue
            if kind.startswith("repeated "):
                f.label, kind = field.LABEL_REPEATED, kind.removeprefix("repeated ")
            if kind in kinds:
                f.type = kinds[kind]
            else:
                f.type = field.TYPE_ENUM if kind == "RunnerStatus" else field.TYPE_MESSAGE
                f.type_name = ".coordinator." + kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    of = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return {name: of(pool.FindMessageTypeByName("coordinator." + name)) for name in MESSAGES}


class Coordinator:
    """The calls of a worker."""

    def __init__(self, channel, token_file):
        self.messages, self.token_file = make_messages(), token_file
        self.calls = {name: channel.unary_unary(
            "/coordinator.PoolCoordinator/" + name,
            request_serializer=self.messages[name + "Request"].SerializeToString,
            response_deserializer=self.messages[name + "Response"].FromString,
        ) for name in ("SendHeartbeat", "PollJob", "ReportJobResult")}

    def call(self, name, timeout, **fields):
        metadata = ()
        if self.token_file:  # read each time: it may be replaced
            with open(self.token_file, encoding="utf-8") as f:
                metadata = (("authorization", "Bearer " + f.read().strip()),)
        return self.calls[name](self.messages[name + "Request"](**fields), timeout=timeout, metadata=metadata, wait_for_ready=False)


class Tail:
    """Reads a pipe to its end and keeps the end of it: a job that writes much must not
    wait, and must not fill the memory."""

    def __init__(self, pipe):
        self.pipe, self.data = pipe, b""
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while chunk := self.pipe.read1(64 << 10):
            self.data = (self.data + chunk)[-OUTPUT_BYTES:]

    def text(self):
        self.thread.join(timeout=END_GRACE)  # whoever left the job's process group may hold it open
        return self.data.decode("utf-8", errors="replace")


class Run:
    """One job: its process group, its private directory, its end."""

    def __init__(self, job, work_dir):
        self.job, self.ended = job, threading.Event()
        self.limit, self.limited = time.monotonic() + (job.timeout_seconds or 3600), False
        self.unwanted, self.cut = False, False  # by the coordinator; because the worker has to leave
        self.directory = tempfile.mkdtemp(prefix="job-", dir=work_dir)  # mode 0700, and no name that anybody could foresee

    def run(self):
        """Returns exit code, stdout and stderr."""
        env = {k: os.environ[k] for k in ("PATH", "LANG", "TZ") if k in os.environ}  # nothing of the worker's own
        env.update(HOME=self.directory, TMPDIR=self.directory)
        env.update(self.job.env_variables)
        try:
            script, work = os.path.join(self.directory, "script"), os.path.join(self.directory, "work")
            os.mkdir(work, 0o700)
            with open(script, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
                f.write(self.job.script)  # a file: in the arguments everybody could read it
            process = subprocess.Popen(
                ["/bin/sh", script], cwd=work, env=env, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            out, err = Tail(process.stdout), Tail(process.stderr)
            code = self.wait(process)
            return code, out.text(), err.text()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def wait(self, process):
        code = None
        while code is None:
            try:
                code = process.wait(timeout=min(1, max(0, self.limit - time.monotonic())))
            except subprocess.TimeoutExpired:
                if time.monotonic() >= self.limit or self.unwanted:
                    self.limited = True
                    self.end(process, signal.SIGTERM)
                    try:
                        process.wait(timeout=END_GRACE)
                    except subprocess.TimeoutExpired:
                        pass
                    code = TIME_LIMIT_EXIT_CODE
        self.end(process, signal.SIGKILL)  # what it has left behind
        process.wait()
        return code if code >= 0 else 128 - code  # as a shell tells of a signal

    @staticmethod
    def end(process, how):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            pass

    def end_within(self, seconds):
        if time.monotonic() + seconds < self.limit:
            self.limit, self.cut = time.monotonic() + seconds, True


class Worker:
    def __init__(self, coordinator, args):
        self.coordinator, self.args = coordinator, args
        self.stopping = threading.Event()  # take no more jobs
        self.wake = threading.Event()      # a heartbeat is due
        self.current = None                # Run
        self.who = {"runner_id": args.runner_id, "pool_name": args.pool}
        self.instance = {"instance_id": args.instance_id}

    def drain(self, why):
        if not self.stopping.is_set():
            print(f"worker {self.args.runner_id}: {why}: no more jobs", flush=True)
            self.stopping.set()
        if run := self.current:
            run.end_within(self.args.drain)
        self.wake.set()

    def heartbeats(self):
        while True:
            run = self.current
            try:
                answer = self.coordinator.call("SendHeartbeat", HEARTBEAT_EVERY, **self.who, **self.instance, status=BUSY if run else IDLE,
                                               active_job_count=1 if run else 0, draining=self.stopping.is_set())
                if run and run.job.id in answer.ended_job_ids:
                    run.unwanted = True
                if answer.terminate and not self.stopping.is_set():
                    print(f"worker {self.args.runner_id}: told to leave: {answer.reason}", flush=True)
                    self.stopping.set()  # its job may take as long as it takes
            except (grpc.RpcError, OSError) as e:
                self.complain("heartbeat", e)
            self.wake.wait(self.args.heartbeat)
            self.wake.clear()

    def work(self):
        wait = BACKOFF[0]
        while not self.stopping.is_set():
            try:
                answer = self.coordinator.call("PollJob", POLL_TIMEOUT, **self.who, **self.instance)
            except (grpc.RpcError, OSError) as e:
                if self.no_job(e):
                    wait = BACKOFF[0]
                    continue
                self.complain("poll", e)
                self.stopping.wait(random.uniform(0, wait))
                wait = min(2 * wait, BACKOFF[1])
                continue
            wait = BACKOFF[0]
            self.do(answer.job)

    def no_job(self, e):
        """Whether an error says no more than that there is no job, and what goes with it."""
        if isinstance(e, OSError) or e.code() != grpc.StatusCode.NOT_FOUND or e.details().startswith("pool not found"):
            return False
        trailer = dict(e.trailing_metadata() or ())
        if trailer.get("spillway-terminate") == "true":
            self.drain("told to leave")
        elif trailer.get("spillway-draining") == "true":
            self.stopping.wait(1)  # until that is taken back
        return True

    def complain(self, what, e):
        text = str(e) if isinstance(e, OSError) else f"{e.code().name} {e.details()}"
        print(f"worker {self.args.runner_id}: {what}: {text}", file=sys.stderr, flush=True)

    def do(self, job):
        run = self.current = Run(job, self.args.work_dir)
        if self.stopping.is_set():  # told to stop while the answer was on its way
            run.end_within(self.args.drain)
        self.wake.set()  # the coordinator hears at once that the job has arrived
        code, out, err = 1, "", ""
        try:
            code, out, err = run.run()
        except OSError as e:
            err = f"the job could not be started: {e}"
        finally:
            print(f"worker {self.args.runner_id}: job {job.id} attempt {job.attempt} ended with {code}", flush=True)
            if run.cut and run.limited:
                print(f"worker {self.args.runner_id}: job {job.id} is left to another worker", flush=True)
            elif not run.unwanted:
                self.report(job, code, out, err)
            self.current = None

    def report(self, job, code, out, err):
        """Until the result is stored, or nobody wants it."""
        wait, until = BACKOFF[0], time.monotonic() + self.args.drain
        while True:
            try:
                self.coordinator.call("ReportJobResult", REPORT_TIMEOUT, job_id=job.id, runner_id=self.args.runner_id, attempt=job.attempt,
                                      success=code == 0, exit_code=code, stdout=out, stderr=err)
                return
            except (grpc.RpcError, OSError) as e:
                self.complain(f"result of {job.id}", e)
                again = isinstance(e, OSError) or e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
                if not again or (self.stopping.is_set() and time.monotonic() > until):
                    return
            time.sleep(random.uniform(0, wait))
            wait = min(2 * wait, BACKOFF[1])


def channel(args):
    options = [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 20_000)]
    if args.plaintext:
        return grpc.insecure_channel(args.addr, options)

    def read(path):
        if not path:
            return None
        with open(path, "rb") as f:
            return f.read()

    return grpc.secure_channel(args.addr, grpc.ssl_channel_credentials(read(args.ca_file), read(args.key_file), read(args.cert_file)), options)


def await_signals(worker):
    """A handler runs in the middle of whatever the main thread does, and must not take the
    locks that this may hold: a thread of its own does what a signal asks for."""
    receive, send = os.pipe()
    os.set_blocking(send, False)
    signal.set_wakeup_fd(send)
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: None)

    def obey():
        while number := os.read(receive, 1):
            worker.drain(signal.Signals(number[0]).name)

    threading.Thread(target=obey, daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--addr", required=True, help="host:port of listen.api")
    parser.add_argument("--pool", required=True)
    parser.add_argument("--runner-id", default=f"{socket.gethostname()}-{os.getpid()}", help="one per process")
    parser.add_argument("--instance-id", default="", help="the cloud's id of this machine; default: the runner's id")
    parser.add_argument("--ca-file", help="authorities that may vouch for the coordinator; default: the system's")
    parser.add_argument("--cert-file", help="client certificate")
    parser.add_argument("--key-file", help="and its key")
    parser.add_argument("--token-file", help="bearer token, if the coordinator wants one")
    parser.add_argument("--plaintext", action="store_true", help="no TLS; for a coordinator on a loopback address")
    parser.add_argument("--work-dir", help="where jobs get their private directories; default: the system's for temporary files")
    parser.add_argument("--heartbeat", type=float, default=HEARTBEAT_EVERY, help="seconds between heartbeats")
    parser.add_argument("--drain", type=float, default=DRAIN_AT_MOST, help="seconds that a job may go on after SIGTERM")
    args = parser.parse_args()
    worker = Worker(Coordinator(channel(args), args.token_file), args)
    await_signals(worker)
    threading.Thread(target=worker.heartbeats, daemon=True).start()
    worker.work()


if __name__ == "__main__":
    main()
