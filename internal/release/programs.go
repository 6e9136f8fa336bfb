package main

// program is one executable.
type program struct {
	name string // of the file
	from string // package, below the source
	dir  string // where it is installed
	// command is a Go expression in that package for its *cobra.Command, of which
	// pages and completions are made; empty: it has none.
	command string
}

// pack is what is installed together: one deb and one rpm for each architecture.
type pack struct {
	name     string
	unit     string // service, user and folders below /etc, /var/lib and /var/log
	summary  string
	text     string
	programs []program
	config   []configFile
	// afterUpgrade is the shell command that follows an upgrade on a running system.
	afterUpgrade string
	// example is a file, below the source, that goes to the package's documentation.
	example string
}

// configFile is one that an upgrade leaves as its owner has changed it.
type configFile struct {
	from string // below deploy/etc
	mode uint32
}

const (
	binDir    = "/usr/bin"
	pluginDir = "/usr/lib/spillway/plugins"
)

func plugin(name string) program {
	return program{name: "spillway-provider-" + name, from: "./cmd/plugins/" + name, dir: pluginDir}
}

// packages are all that a release has.
var packages = []pack{
	{
		name: "spillway-control-plane", unit: "spillway",
		summary: "autoscaling for CI runner fleets: control plane",
		text:    "Scales CI runner fleets on the jobs that really wait and run. With spillwayctl, and\nthe provider plugins for EC2 Auto Scaling groups, Google managed instance groups,\nfleeting plugins and local processes.",
		programs: []program{
			{name: "controlplane", from: "./cmd/controlplane", dir: binDir, command: "newRoot()"},
			{name: "spillwayctl", from: "./cmd/spillwayctl", dir: binDir, command: `(&app{getenv: func(string) string { return "" }}).root()`},
			plugin("ec2asg"), plugin("gcemig"), plugin("fleeting"), plugin("local"),
		},
		config:       []configFile{{"spillway.yaml", 0o644}, {"spillway.env", 0o600}},
		afterUpgrade: "systemctl try-restart spillway.service",
		example:      "config/example.yaml",
	},
	{
		name: "spillway-agent", unit: "spillway-agent",
		summary:  "autoscaling for CI runner fleets: agent",
		text:     "Takes jobs from a Spillway control plane and runs them, or speaks for a runner on\nthe same machine.",
		programs: []program{{name: "spillway-agent", from: "./cmd/agent", dir: binDir, command: "newCommand()"}},
		config:   []configFile{{"agent.env", 0o600}},
		// Jobs run inside the service: when to end them is the owner's to say.
		afterUpgrade: "echo 'spillway-agent goes on with the version that it was started with, until: systemctl restart spillway-agent'",
	},
}
