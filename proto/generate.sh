#!/usr/bin/env bash
# Writes the generated Go beside each .proto file. Needs protoc (Debian:
# protobuf-compiler and libprotobuf-dev, for the well-known types); the Go plugins are pinned in go.tools.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v protoc >/dev/null || {
	echo "protoc is missing: apt-get install protobuf-compiler libprotobuf-dev" >&2
	exit 1
}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -modfile=go.tools.mod -o "$bin/" google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
out=${1:-proto}
PATH="$bin:$PATH" protoc -I proto --go_out="$out" --go_opt=paths=source_relative \
	--go-grpc_out="$out" --go-grpc_opt=paths=source_relative \
	$(find proto -name '*.proto' | LC_ALL=C sort)
# The version of protoc itself is the machine's; it must not count as drift.
find "$out" -name '*.pb.go' -exec sed -i -E '/^\/\/ (-? *)protoc  +v/d' {} +
