# The part of the startup script that is the same everywhere; the settings stand before it.
# It runs at each boot, and changes nothing at the second one.
# shellcheck shell=bash
set -euo pipefail
umask 022

LIB=/usr/local/lib/spillway
RUN=/run/spillway # in memory: secrets are never on a disk
LOGS=/var/log/spillway

# install_pinned URL SHA256 FILE: nothing gets to its place, or is run, whose checksum is another.
install_pinned() {
  local part
  if [ -e "$3" ] && echo "$2  $3" | sha256sum --check --strict --status; then return 0; fi
  part=$(mktemp -d)
  curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' \
    --retry 5 --retry-connrefused --max-time 300 --output "$part/file" "$1"
  echo "$2  $part/file" | sha256sum --check --strict --quiet
  install -m 0755 "$part/file" "$3"
  rm -r "$part"
}

# metadata ITEM: asks the metadata server about this instance.
metadata() {
  curl --fail --silent --show-error --noproxy '*' --header 'Metadata-Flavor: Google' --retry 5 "http://metadata.google.internal/computeMetadata/v1/instance/$1"
}

# The configuration and the secrets become files that are replaced as wholes. A replica
# takes up certificates and tokens when they change, and the configuration on SIGHUP; one
# that is not valid changes nothing.
write_reader() {
  local replica
  replica=$(metadata hostname)
  cat >"$LIB/read-settings" <<'PYTHON'
#!/usr/bin/env python3
"""Reads a replica's configuration and secrets into files in memory, for its user only."""
import base64
import json
import os
import pwd
import sys
import urllib.request

folder, owner, given, of_redis, config, replica = sys.argv[1:7]
user = pwd.getpwnam(owner)
METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
MANAGER = "https://secretmanager.googleapis.com/v1/"
without_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url, headers):
    with without_proxy.open(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return json.load(answer)


bearer = "Bearer " + ask(METADATA, {"Metadata-Flavor": "Google"})["access_token"]


def read(name):
    answer = ask(MANAGER + name + "/versions/latest:access", {"Authorization": bearer})
    return base64.b64decode(answer["payload"]["data"]).decode()


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
    secret = json.loads(read(given))
    files = {name: secret[name] for name in ("cert", "key") if name in secret}
    files.update(json.loads(read(of_redis)))
    files.update(secret.get("files", {}))
    files.update({"tokens/" + name: text for name, text in secret.get("tokens", {}).items()})
except (ValueError, AttributeError, TypeError):
    sys.exit("a secret is not a JSON object as it should be")  # and nothing of it is printed
for name, text in files.items():
    if name.startswith("/") or ".." in name.split("/"):
        sys.exit("the secret names a file elsewhere")
    write(name, text)
write("spillway.yaml", read(config).replace("@REPLICA@", replica))
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
ExecStart=$LIB/read-settings $RUN spillway $SECRET_ID $REDIS_ID $CONFIG_ID $replica
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

# Logs go to Cloud Logging if the image has Google's Ops Agent. It sends nothing else: the
# replicas' account may not write metrics.
send_logs() {
  local folder=/etc/google-cloud-ops-agent
  [ -d "$folder" ] || return 0
  cat >"$folder/config.yaml" <<YAML
logging:
  receivers:
    spillway:
      type: files
      include_paths: [$LOGS/*.log]
  service:
    pipelines:
      default_pipeline:
        receivers: []
      spillway:
        receivers: [spillway]
metrics:
  service:
    pipelines:
      default_pipeline:
        receivers: []
YAML
  systemctl restart google-cloud-ops-agent.service
}

mkdir -p "$LIB" /etc/spillway "$LOGS" /usr/lib/spillway/plugins
id -u spillway >/dev/null 2>&1 || useradd --system --home-dir /var/lib/spillway --create-home --shell /usr/sbin/nologin spillway
install_pinned "$CONTROLPLANE_URL" "$CONTROLPLANE_SHA256" /usr/local/bin/controlplane
install_pinned "$PLUGIN_URL" "$PLUGIN_SHA256" /usr/lib/spillway/plugins/spillway-provider-gcemig
write_reader
write_replica
systemctl daemon-reload
systemctl enable --now spillway-settings.timer spillway.service
send_logs
