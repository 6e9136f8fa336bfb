#!/bin/sh
# What the provider runs: list GROUP, create GROUP or delete GROUP ID. Here a VM is
# a file below $VMS; put the commands of your hypervisor in its place.
set -eu
dir="${VMS:-/tmp/vms}/$2"
mkdir -p "$dir"
case "$1" in
list) ls "$dir" ;;
create) basename "$(mktemp "$dir/vm-XXXXXXXX")" ;;
delete) rm "$dir/$3" ;;
esac
