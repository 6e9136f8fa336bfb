# The part of user data that is the same everywhere; the settings of the pool stand before it.
# shellcheck shell=bash
set -euo pipefail
umask 022

LIB=/usr/local/lib/spillway
RUN=/run/spillway # in memory: secrets are never on a disk
LOGS=/var/log/spillway

# install_pinned URL SHA256 FILE: nothing gets to its place, or is run, whose checksum is another.
install_pinned() {
  local part
  part=$(mktemp -d)
  curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' \
    --retry 5 --retry-connrefused --max-time 300 --output "$part/file" "$1"
  echo "$2  $part/file" | sha256sum --check --strict --quiet
  install -m 0755 "$part/file" "$3"
  rm -r "$part"
}

# add_user NAME: a user without a login, with a home of its own.
add_user() {
  id -u "$1" >/dev/null 2>&1 || useradd --system --create-home --home-dir "/var/lib/$1" --shell /usr/sbin/nologin "$1"
}

# metadata ITEM: asks the instance metadata service, version 2.
metadata() {
  local token
  token=$(curl --fail --silent --show-error --request PUT --header 'X-aws-ec2-metadata-token-ttl-seconds: 60' \
    --retry 5 http://169.254.169.254/latest/api/token)
  curl --fail --silent --show-error --header "X-aws-ec2-metadata-token: $token" --retry 5 "http://169.254.169.254/latest/meta-data/$1"
}

# The secret's parts become files that are replaced as wholes. The agent reads them again
# when they change.
write_secret_reader() {
  cat >"$LIB/read-secret" <<'PYTHON'
#!/usr/bin/env python3
"""Reads the pool's secret and writes its parts to files in memory, for their users only."""
import json
import os
import pwd
import subprocess
import sys

folder, owner, region, arn = sys.argv[1:5]
answer = subprocess.run(
    ["aws", "secretsmanager", "get-secret-value", "--region", region, "--secret-id", arn, "--query", "SecretString", "--output", "text"],
    check=True, stdout=subprocess.PIPE, timeout=60,
)
try:
    secret = json.loads(answer.stdout)
    if not isinstance(secret, dict):
        raise ValueError
except ValueError:
    sys.exit("the secret is not a JSON object")  # and nothing of it is printed
user = pwd.getpwnam(owner)


def write(name, text, uid, gid):
    part = os.path.join(folder, "." + name)
    if os.path.exists(part):
        os.unlink(part)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    os.chown(part, uid, gid)
    os.replace(part, os.path.join(folder, name))


for name in ("runner_token", "ca", "cert", "key"):
    if secret.get(name):
        write(name, secret[name].rstrip("\n") + "\n", user.pw_uid, user.pw_gid)
template = "/etc/spillway/gitlab-runner.toml"
if os.path.exists(template):
    if not secret.get("gitlab_token"):
        sys.exit("the secret has no gitlab_token")
    with open(template) as file:
        # A JSON string is a TOML string.
        write("gitlab-runner.toml", file.read().replace('"@TOKEN@"', json.dumps(secret["gitlab_token"])), 0, 0)
PYTHON
  chmod 0755 "$LIB/read-secret"
  cat >/etc/systemd/system/spillway-secret.service <<UNIT
[Unit]
Description=Secret of the Spillway pool $POOL
Wants=network-online.target
After=network-online.target

# The account's rights may come some seconds after the instance.
StartLimitIntervalSec=0

[Service]
Type=oneshot
Restart=on-failure
RestartSec=15
ExecStartPre=/usr/bin/install -d -m 0711 $RUN
ExecStart=$LIB/read-secret $RUN $OWNER $REGION $SECRET_ARN
UNIT
  cat >/etc/systemd/system/spillway-secret.timer <<'UNIT'
[Unit]
Description=Renewed secrets of the Spillway pool

[Timer]
OnActiveSec=1h
OnUnitActiveSec=1h
RandomizedDelaySec=10min

[Install]
WantedBy=timers.target
UNIT
}

# The flags of TLS depend on what the secret has.
write_agent() {
  cat >"$LIB/agent" <<'SCRIPT'
#!/bin/bash
set -euo pipefail
if ! [ -e /run/spillway/runner_token ]; then
  echo 'the secret was not read yet' >&2
  exit 75 # tried again
fi
flags=(--token-file /run/spillway/runner_token --cloud aws)
if [ -e /run/spillway/ca ]; then flags+=(--ca-file /run/spillway/ca); fi
if [ -e /run/spillway/cert ]; then flags+=(--cert /run/spillway/cert --key /run/spillway/key); fi
exec /usr/local/bin/spillway-agent "${flags[@]}" "$@"
SCRIPT
  chmod 0755 "$LIB/agent"
  cat >/etc/systemd/system/spillway-agent.service <<UNIT
[Unit]
Description=Spillway agent of the pool $POOL
# Not Requires: what did not start for want of its secret would not start with it.
Wants=spillway-secret.service
After=spillway-secret.service$1
StartLimitIntervalSec=0

[Service]
User=$OWNER
ExecStart=$LIB/agent --router $ROUTER --capacity $CAPACITY $2
KillMode=mixed
TimeoutStopSec=$((DRAIN_SECONDS + 60))
Restart=on-failure
RestartSec=5
RestartPreventExitStatus=64 77
StandardOutput=append:$LOGS/agent.log
StandardError=inherit

[Install]
WantedBy=multi-user.target
UNIT
}

# The runner's configuration, without its token: the secret reader puts that in.
write_runner() {
  local sections=""
  if [ "$MODE" = route ]; then
    sections="  [runners.feature_flags]
    FF_USE_JOB_ROUTER = true
  [runners.labels]
    spillway-pool = \"$POOL\"
    spillway-instance = \"$(metadata instance-id)\""
  fi
  cat >/etc/spillway/gitlab-runner.toml <<TOML
concurrent = $CAPACITY
listen_address = "$METRICS_LISTENER"
shutdown_timeout = $DRAIN_SECONDS

[[runners]]
  name = "$POOL"
  url = "$GITLAB_URL"
  token = "@TOKEN@"
  executor = "$EXECUTOR"
$sections
TOML
  if [ "$EXECUTOR" = docker ]; then
    printf '  [runners.docker]\n    image = "%s"\n    privileged = false\n' "$DOCKER_IMAGE" >>/etc/spillway/gitlab-runner.toml
  fi
  cat >/etc/systemd/system/gitlab-runner.service <<UNIT
[Unit]
Description=GitLab Runner of the pool $POOL
# Not Requires, as for the agent: it is tried again until its configuration is there.
Wants=spillway-secret.service
After=spillway-secret.service

[Service]
ExecStartPre=/usr/bin/test -e $RUN/gitlab-runner.toml
ExecStart=/usr/local/bin/gitlab-runner run --config $RUN/gitlab-runner.toml --working-directory /var/lib/gitlab-runner --user gitlab-runner
KillSignal=SIGQUIT
KillMode=mixed
TimeoutStopSec=$DRAIN_SECONDS
Restart=always
RestartSec=120
StandardOutput=append:$LOGS/gitlab-runner.log
StandardError=inherit

[Install]
WantedBy=multi-user.target
UNIT
}

# Logs go to CloudWatch if the image has Amazon's agent for that.
send_logs() {
  local ctl=/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
  [ -x "$ctl" ] || return 0
  cat >/etc/spillway/logs.json <<JSON
{"agent": {"region": "$REGION"},
 "logs": {"logs_collected": {"files": {"collect_list": [
   {"file_path": "$LOGS/*.log", "log_group_name": "$LOG_GROUP", "log_stream_name": "{instance_id}"}]}}}}
JSON
  "$ctl" -a fetch-config -m ec2 -s -c file:/etc/spillway/logs.json
}

mkdir -p "$LIB" /etc/spillway "$LOGS"
services=()
if [ "$MODE" = orchestrate ]; then
  OWNER=spillway
  add_user "$OWNER"
  install_pinned "$AGENT_URL" "$AGENT_SHA256" /usr/local/bin/spillway-agent
  write_agent "" "--drain-timeout ${DRAIN_SECONDS}s"
  services+=(spillway-agent.service)
else
  OWNER=root # for systemctl kill, stop and start of the runner's unit
  add_user gitlab-runner
  install_pinned "$RUNNER_URL" "$RUNNER_SHA256" /usr/local/bin/gitlab-runner
  write_runner
  services+=(gitlab-runner.service)
  if [ -n "${AGENT_URL:-}" ]; then
    install_pinned "$AGENT_URL" "$AGENT_SHA256" /usr/local/bin/spillway-agent
    write_agent " gitlab-runner.service" "--sidecar --runner-unit gitlab-runner.service --restart-command 'systemctl start gitlab-runner.service'"
    services+=(spillway-agent.service)
  fi
fi
write_secret_reader
systemctl daemon-reload
systemctl enable --now spillway-secret.timer "${services[@]}"
send_logs
