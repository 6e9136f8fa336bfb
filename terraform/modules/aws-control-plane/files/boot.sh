# The part of user data that is the same everywhere; the settings stand before it.
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

# metadata ITEM: asks the instance metadata service, version 2.
metadata() {
  local token
  token=$(curl --fail --silent --show-error --request PUT --header 'X-aws-ec2-metadata-token-ttl-seconds: 60' \
    --retry 5 http://169.254.169.254/latest/api/token)
  curl --fail --silent --show-error --header "X-aws-ec2-metadata-token: $token" --retry 5 "http://169.254.169.254/latest/meta-data/$1"
}

# The configuration and the secret become files that are replaced as wholes. A replica
# takes up certificates and tokens when they change, and the configuration on SIGHUP; one
# that is not valid changes nothing.
write_reader() {
  local address replica
  address=$(metadata local-ipv4)
  replica=ip-${address//./-}.$REPLICA_DOMAIN
  cat >"$LIB/read-settings" <<'PYTHON'
#!/usr/bin/env python3
"""Reads a replica's configuration and secret into files in memory, for its user only."""
import json
import os
import pwd
import subprocess
import sys

folder, owner, region, arn, parameter, replica = sys.argv[1:7]
user = pwd.getpwnam(owner)


def ask(*words):
    answer = subprocess.run(["aws", *words, "--region", region, "--output", "text"], check=True, stdout=subprocess.PIPE, timeout=60)
    return answer.stdout.decode()


def write(name, text):
    path = os.path.join(folder, name)
    part = path + ".part"
    os.makedirs(os.path.dirname(path), mode=0o711, exist_ok=True)
    if os.path.exists(part):
        os.unlink(part)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text.rstrip("\n") + "\n")
    os.chown(part, user.pw_uid, user.pw_gid)
    os.replace(part, path)


try:
    secret = json.loads(ask("secretsmanager", "get-secret-value", "--secret-id", arn, "--query", "SecretString"))
    files = {name: secret[name] for name in ("cert", "key", "redis_password") if name in secret}
    files.update(secret.get("files", {}))
    files.update({"tokens/" + name: text for name, text in secret.get("tokens", {}).items()})
except (ValueError, AttributeError, TypeError):
    sys.exit("the secret is not a JSON object as it should be")  # and nothing of it is printed
for name, text in files.items():
    if name.startswith("/") or ".." in name.split("/"):
        sys.exit("the secret names a file elsewhere")
    write(name, text)
config = ask("ssm", "get-parameter", "--name", parameter, "--query", "Parameter.Value")
write("spillway.yaml", config.replace("@REPLICA@", replica))
PYTHON
  chmod 0755 "$LIB/read-settings"
  cat >/etc/systemd/system/spillway-settings.service <<UNIT
[Unit]
Description=Configuration and secrets of Spillway
Wants=network-online.target
After=network-online.target

# The role's rights may come some seconds after the instance.
StartLimitIntervalSec=0

[Service]
Type=oneshot
Restart=on-failure
RestartSec=15
ExecStartPre=/usr/bin/install -d -m 0711 $RUN
ExecStart=$LIB/read-settings $RUN spillway $REGION $SECRET_ARN $CONFIG $replica
ExecStartPost=-/usr/bin/systemctl try-reload-or-restart --no-block spillway.service
UNIT
  cat >/etc/systemd/system/spillway-settings.timer <<'UNIT'
[Unit]
Description=Changes of Spillway's configuration and secrets

[Timer]
OnActiveSec=5min
OnUnitActiveSec=5min
RandomizedDelaySec=1min

[Install]
WantedBy=timers.target
UNIT
}

write_replica() {
  cat >/etc/systemd/system/spillway.service <<UNIT
[Unit]
Description=Spillway control plane
# Not Requires: what did not start for want of its settings would not start with them.
Wants=spillway-settings.service
After=spillway-settings.service
StartLimitIntervalSec=0

[Service]
User=spillway
ExecStart=/usr/local/bin/controlplane serve --config $RUN/spillway.yaml
ExecReload=/bin/kill -HUP \$MAINPID
Restart=always
RestartSec=5
# The control plane ends its plugins itself.
KillMode=mixed
TimeoutStopSec=60
LimitNOFILE=65536
LogsDirectory=spillway
StateDirectory=spillway
CapabilityBoundingSet=
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectHome=yes
ProtectSystem=strict
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictSUIDSGID=yes
StandardOutput=append:$LOGS/controlplane.log
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

mkdir -p "$LIB" /etc/spillway "$LOGS" /usr/lib/spillway/plugins
id -u spillway >/dev/null 2>&1 || useradd --system --home-dir /var/lib/spillway --create-home --shell /usr/sbin/nologin spillway
install_pinned "$CONTROLPLANE_URL" "$CONTROLPLANE_SHA256" /usr/local/bin/controlplane
install_pinned "$PLUGIN_URL" "$PLUGIN_SHA256" /usr/lib/spillway/plugins/spillway-provider-ec2asg
write_reader
write_replica
systemctl daemon-reload
systemctl enable --now spillway-settings.timer spillway.service
send_logs
