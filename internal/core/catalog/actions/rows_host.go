package actions

import "github.com/junctor-run/junctor/capability"

// hostRows returns the families of machines, stores and agents.
func hostRows() []Row {
	return []Row{
		{
			ID: "provider.authenticate", Title: "Authenticate a provider",
			Description: "Run a provider's sign-in and return the profiles it gave.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectAdmin,
			Visibility: capability.AudienceOperator,
		},
		{
			ID: "provider.configure", Title: "Configure a provider",
			Description: "Turn settings of a provider into a change of configuration.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectAdmin,
			Visibility: capability.AudienceOperator,
		},
		{
			ID: "provider.discover", Title: "Discover providers",
			Description: "List the providers that can be set up, in discovery order.",
			Mode:        ModeComposed, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Visibility: capability.AudienceOperator,
		},
		{
			ID: "memory.search", Title: "Search memory",
			Description: "Find stored items by meaning or words.",
			Mode:        ModeExclusive, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Slot: "memory",
		},
		{
			ID: "memory.store", Title: "Store in memory",
			Description: "Store a text for later calls of the same principal or, with shared, of the whole workspace.",
			Mode:        ModeExclusive, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Slot: "memory",
		},
		{
			ID: "memory.get", Title: "Read from memory",
			Description: "Read one stored item.",
			Mode:        ModeExclusive, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Slot: "memory",
		},
		{
			ID: "memory.forget", Title: "Forget",
			Description: "Remove one stored item.",
			Mode:        ModeExclusive, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Slot: "memory",
		},
		{
			ID: "diff.render", Title: "Render a diff",
			Description: "Render the difference of two texts.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "fs.list", Title: "List a directory",
			Description: "List the entries of one directory of a configured root, by name.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "fs.readText", Title: "Read a text file",
			Description: "Read a UTF-8 text file of a configured root.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "fs.writeText", Title: "Write a text file",
			Description: "Write a UTF-8 text file of a configured root as a whole.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
		},
		{
			ID: "pty.command.run", Title: "Run a command",
			Description: "Run one command to its end and return its output and exit code.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
		},
		{
			ID: "git.status", Title: "Git status",
			Description: "Report the branch and the changed files of a working tree.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "git.diff", Title: "Git diff",
			Description: "Return the unified diff of a working tree or its index.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "git.command.run", Title: "Run git",
			Description: "Run one git command in a working tree.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
		},
		{
			ID: "model.status", Title: "Model status",
			Description: "Report whether a model provider is ready, and which.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "model.invoke", Title: "Invoke a model",
			Description: "Run a model of a type on a backend.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectExternal,
			Visibility: capability.AudienceInternal,
		},
		{
			ID: "device.function.invoke", Title: "Call a node's function",
			Description: "Call a function of a node by its name.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectExternal,
		},
		{
			ID: "device.function.list", Title: "List a node's functions",
			Description: "List the functions a node offers.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"device.list_node_functions"},
		},
		{
			ID: "device.skill.list", Title: "List a node's skills",
			Description: "List the skills installed on a node.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"device.list_installed_skills"},
		},
		{
			ID: "device.status.get", Title: "Node status",
			Description: "Report the status of a node's capability host.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"device.get_capability_host_status"},
		},
		{
			ID: "device.skill.install", Title: "Install a skill",
			Description: "Install or replace a skill on a node.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectAdmin,
			Aliases: []string{"device.install_remote_skill"},
		},
		{
			ID: "device.skill.uninstall", Title: "Uninstall a skill",
			Description: "Remove a skill from a node.",
			Mode:        ModeParallel, Address: AddressTarget, Pin: PinStrict, Effect: capability.EffectAdmin,
			Aliases: []string{"device.uninstall_remote_skill"},
		},
		{
			ID: "task-agent.task.create", Title: "Create a task",
			Description: "Delegate a coding, research or other larger task to one or more agents that work on their own, in a repository or a folder; each gets a place of its own. Answers at once; the result is reported when they are done.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Aliases: []string{"CREATE_TASK"},
		},
		{
			ID: "task-agent.spawn", Title: "Start an agent",
			Description: "Start one agent in a terminal, with or without a task. For whole tasks, create a task instead.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Aliases: []string{"SPAWN_AGENT"},
		},
		{
			ID: "task-agent.send", Title: "Send to an agent",
			Description: "Tell a running agent something, answer the question it asks, press keys, or give it its next task.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Aliases: []string{"SEND_TO_AGENT"},
		},
		{
			ID: "task-agent.list", Title: "List agents",
			Description: "List the running agents with what each does or asks, their tasks, and decisions that wait to be confirmed.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"LIST_AGENTS"},
		},
		{
			ID: "task-agent.stop", Title: "Stop an agent",
			Description: "Stop a running agent, or all of them. Its task can be resumed.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Aliases: []string{"STOP_AGENT"},
		},
		{
			ID: "task-agent.task.control", Title: "Control a task",
			Description: "Pause, resume, stop, continue, archive or reopen a task.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Aliases: []string{"TASK_CONTROL"},
		},
		{
			ID: "task-agent.task.history", Title: "Task history",
			Description: "List or count tasks, or show one whole: what is under way, what was done today or lately, and what came of it.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"TASK_HISTORY"},
		},
		{
			ID: "task-agent.task.share", Title: "Share a task's result",
			Description: "Find what can be shown of a task: pages, previews, pull requests, files, its folder.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"TASK_SHARE"},
		},
		{
			ID: "workspace.provision", Title: "Provision a workspace",
			Description: "Clone a repository, or add a working tree to a clone, on a new branch for a task.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Aliases: []string{"PROVISION_WORKSPACE"},
		},
		{
			ID: "workspace.finalize", Title: "Finalize a workspace",
			Description: "Commit the work of a workspace, push it and open a pull request. Credentials are searched for first.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectExternal,
			Aliases: []string{"FINALIZE_WORKSPACE"},
		},
		{
			ID: "workspace.issues.manage", Title: "Manage issues",
			Description: "Create, list, read, change, comment, close and reopen issues of a repository; a list becomes one issue per entry.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectExternal,
			Aliases: []string{"MANAGE_ISSUES"},
		},
		{
			ID: "exec.run", Title: "Run a tool",
			Description: "Run a tool of an enabled extension, with that extension's permissions.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
		},
		{
			ID: "analyze.response", Title: "Analyze a response",
			Description: "Answer a question about a stored result.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "analyze.schema", Title: "Analyze a schema",
			Description: "Reserved: describe the shape of a stored result.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectExternal,
			Status: StatusReserved,
		},
		{
			ID: "browser.run", Title: "Run a browser",
			Description: "Reserved: drive a browser.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectExternal,
			Status: StatusReserved,
		},
		{
			ID: "api.call", Title: "Call an API",
			Description: "Reserved: call a declared HTTP API.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectExternal,
			Status: StatusReserved,
		},
		{
			ID: "catalog.search", Title: "Search capabilities",
			Description: "Find actions by words in their names and descriptions.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"search_tools"},
		},
		{
			ID: "catalog.describe", Title: "Describe a capability",
			Description: "Return the input schema of one action.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Aliases: []string{"describe_tools"},
		},
		{
			ID: "catalog.callRead", Title: "Call a reading capability",
			Description: "Call an action of effect read by its name; judged as that action.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectRead,
			Aliases: []string{"call_read_tool"},
		},
		{
			ID: "catalog.call", Title: "Call a capability",
			Description: "Call an action by its name; judged as that action.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectExternal,
			Aliases: []string{"call_tool"},
		},
		{
			ID: "session.status", Title: "Session status",
			Description: "Report the state of the current session.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
		},
		{
			ID: "web.search", Title: "Search the web",
			Description: "Reserved: search the web.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Status: StatusReserved,
		},
		{
			ID: "web.fetch", Title: "Fetch a page",
			Description: "Reserved: fetch a web page.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Status: StatusReserved,
		},
		{
			ID: "media.image.describe", Title: "Describe an image",
			Description: "Reserved: describe an image in words.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinSoft, Effect: capability.EffectRead,
			Status: StatusReserved,
		},
		{
			ID: "media.image.generate", Title: "Generate an image",
			Description: "Reserved: generate an image.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Status: StatusReserved,
		},
		{
			ID: "media.speech.synthesize", Title: "Synthesize speech",
			Description: "Reserved: turn text into speech.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Status: StatusReserved,
		},
		{
			ID: "schedule.manage", Title: "Manage schedules",
			Description: "Reserved: create, list and remove schedules.",
			Mode:        ModeRanked, Address: AddressNone, Pin: PinStrict, Effect: capability.EffectWrite,
			Status: StatusReserved,
		},
	}
}
