# Spillway. `make help` lists the targets.
SHELL := /bin/bash
GO    ?= go
TOOL  := $(GO) tool -modfile=go.tools.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
PLUGINS := local fake ec2asg gcemig fleeting

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: build-demo ## all binaries into bin/, plugins into bin/plugins/
	@for p in $(PLUGINS); do \
		$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/spillway-provider-$$p ./cmd/plugins/$$p || exit 1; \
	done

.PHONY: build-demo
build-demo:
	@mkdir -p bin/plugins
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/controlplane ./cmd/spillwayctl
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/spillway-agent ./cmd/agent
	@$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/plugins/spillway-provider-local ./cmd/plugins/local

.PHONY: demo
demo: build-demo ## the main job on this machine: real jobs, real processes, no services
	@bin/controlplane demo

.PHONY: test
# A story is played by one goroutine, in virtual time: the race detector would make it
# seven times slower and find what the packages' own tests find. make chaos has it.
test: deps lint drift ## everything that CI runs
	$(GO) test -race -timeout 20m $$($(GO) list ./... | grep -vE '/internal/(terraformtest|sim|simcloud)$$')
	$(GO) test -timeout 20m ./internal/sim ./internal/simcloud
	$(GO) test -short ./internal/terraformtest
	cd internal/bench && $(GO) vet ./... && $(GO) test ./...
	cd internal/docsite && $(GO) vet ./... && $(GO) test -short ./...
	cd internal/release && $(GO) test -short -vet=off .

.PHONY: deps
deps: ## install what the tests need (Debian packages, as root), or say what to install
	@./.ci/deps

.PHONY: lint
lint: ## vet, gofumpt and golangci-lint
	$(GO) vet ./...
	@out=$$($(TOOL) gofumpt -l $$(git ls-files -co --exclude-standard '*.go' | grep -v '\.pb\.go$$')); \
		[ -z "$$out" ] || { echo "not gofumpt'ed:"; echo "$$out"; exit 1; }
	$(TOOL) golangci-lint run ./...

.PHONY: fmt
fmt: ## rewrite the code with gofumpt
	$(TOOL) gofumpt -w $$(git ls-files -co --exclude-standard '*.go' | grep -v '\.pb\.go$$')

.PHONY: generate
generate: ## write the generated code
	./proto/generate.sh

.PHONY: drift
drift: ## fail if the generated code is not what the sources give
	@tmp=$$(mktemp -d) && ./proto/generate.sh $$tmp && \
		(cd $$tmp && find . -name '*.go' | while read -r f; do diff -u "$(CURDIR)/proto/$$f" "$$f" || exit 1; done) && \
		rm -rf $$tmp || { echo "generated code differs: run make generate"; exit 1; }

.PHONY: sim
sim: build-demo ## play every scenario, with the invariants on
	@for f in testdata/scenarios/*.yaml; do echo "== $$f"; bin/controlplane simulate $$f || exit 1; done

.PHONY: chaos
chaos: ## 2,000 random fault stories (SEED=n for the first), 500 kills of plugins, 50 of control planes
	$(GO) test -race -short ./internal/sim ./internal/simcloud -timeout 30m -seeds 2
	$(GO) test ./internal/sim -run TestRandomStories -timeout 30m -seeds 2000 -first-seed $(or $(SEED),1)
	$(GO) test ./internal/sim -run TestRandomStoriesOfCells -timeout 30m -cell-seeds 300
	$(GO) test ./internal/sim -run TestRandomGitLabStories -timeout 30m -gitlab-seeds 1000 -first-seed $(or $(SEED),1)
	$(GO) test ./providers -run 'TestC41|TestC42_Chaos' -count=1 -v -timeout 30m -kills 500
	$(GO) test ./cmd/controlplane -run TestC21_KilledAt -count=1 -v -timeout 30m -kill-points 50

.PHONY: e2e
e2e: ## real control planes, plugins, agents, controllers, workers and Redis; ends with a table of what that showed
	$(GO) test -count=1 -timeout 20m -v ./cmd/controlplane

.PHONY: e2e-runner
e2e-runner: ## a real gitlab-runner, named by GITLAB_RUNNER_BIN: alone, beside its double, and with real control planes
	$(GO) test -count=1 -v ./gitlab/realrunner
	$(GO) test -count=1 -v ./cmd/controlplane -run TestRealRunner

TERRAFORM_DOCS := $(TOOL) terraform-docs -c $(CURDIR)/terraform/.terraform-docs.yml
TERRAFORM_DIRS = $$(grep -rl BEGIN_TF_DOCS --include=README.md terraform/modules terraform/examples | xargs -n1 dirname | sort)

.PHONY: generate-terraform
generate-terraform: ## write the tables in the READMEs of the Terraform modules
	@for d in $(TERRAFORM_DIRS); do $(TERRAFORM_DOCS) $$d || exit 1; done

.PHONY: check-terraform
check-terraform: ## Terraform without an account: format, tables, validate, test, policies, user data, apply on an emulator
	@for d in $(TERRAFORM_DIRS); do $(TERRAFORM_DOCS) --output-check $$d >/dev/null || \
		{ echo "$$d/README.md differs: run make generate-terraform"; exit 1; }; done
	$(GO) test -count=1 -timeout 20m ./internal/terraformtest
	cd internal/terraformtest/googleschema && $(GO) vet ./... && $(GO) test ./...

.PHONY: examples
examples: deps ## every example, run for real
	EXAMPLES=whole $(GO) test -count=1 -v ./examples/...

.PHONY: example-observe
example-observe: build-demo ## a GitLab fleet that is watched and scaled, with a stand-in of GitLab and a Prometheus
	@$(GO) build -trimpath -o bin/ ./gitlab/gitlabtest/minirunnerd ./examples/observe
	@bin/observe

.PHONY: example-route
example-route: build-demo ## unmodified runners that get a stand-in's jobs from Spillway
	@$(GO) build -trimpath -o bin/ ./gitlab/gitlabtest/minirunnerd ./examples/route
	@bin/route

.PHONY: bench
bench: ## ratios against peers and limits, in one run (BENCHFLAGS: -short, -run REGEX, --help)
	cd internal/bench && $(GO) run . $(BENCHFLAGS)

.PHONY: release
release: ## archives, deb, rpm, OCI image, Helm chart, SBOM and checksums into dist/ (VERSION, SOURCE_DATE_EPOCH)
	@cd internal/release && $(GO) build -o $(CURDIR)/bin/release .
	bin/release -out dist -version '$(VERSION)'

.PHONY: check-release
# Asked once: with a file that is saved meanwhile it would be another version.
check-release: VERSION := $(VERSION)
check-release: release ## the release of dist/: made anew, installed, removed, run, rendered by a real helm
	cd internal/release/helm && $(GO) build -o $(CURDIR)/bin/helm helm.sh/helm/v3/cmd/helm
	cd internal/release && $(GO) vet . && HELM=$(CURDIR)/bin/helm $(GO) test -count=1 -v -timeout 60m . -dist $(CURDIR)/dist -of-version '$(VERSION)'

.PHONY: docs
docs: ## the documentation as a site in site/: open site/index.html, it needs no server and no network
	@cd internal/docsite && $(GO) build -o $(CURDIR)/bin/docsite .
	bin/docsite -out site -version '$(VERSION)'

.PHONY: check-docs
check-docs: ## the site, also in a browser (installs chromium as root, else says so); all commands of the documentation
	@./.ci/deps browser
	cd internal/docsite && $(GO) vet ./... && $(GO) test -count=1 ./...
	$(GO) test -count=1 ./docs -everything

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist site
