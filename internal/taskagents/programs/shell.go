package programs

import (
	"path/filepath"
)

func shellProgram() Program {
	return Program{
		Name: Shell, Aliases: []string{"shell", "bash"}, Binary: "/bin/bash",
		Greeting: "pty>", DeliverDelay: defaultDeliverDelay,
		plan: (*build).shell,
	}
}

// shell plans a session of a shell. A known shell is configured to print sequences when a
// command starts and ends; the text of the commands is not interpreted.
func (b *build) shell() error {
	if own := b.Parent["SHELL"]; own != "" && b.Binary == b.program.Binary {
		b.Binary = own
	}
	b.env["PS1"] = "pty> "
	switch filepath.Base(b.Binary) {
	case "bash":
		b.typed([]string{"--noprofile", "--rcfile", b.private(bashMarks, "bashrc"), "-i"})
	case "zsh":
		b.folder("zsh")
		b.private(zshMarks, "zsh", ".zshrc")
		b.env["ZDOTDIR"] = b.state("zsh")
		b.typed([]string{"-i"})
	default:
		b.note(b.Binary + " does not report the end of a command; it is detected from the prompt")
		b.typed([]string{"-i"})
	}
	if b.Preset != Autonomous {
		b.note("a shell runs what it is told: the preset does not hold it back")
	}
	return nil
}

// The marks of OSC 133: A and B around the prompt, C before a command, D with its status
// after it.
const (
	bashMarks = `PS1='pty> '
PS0='\e]133;C\a'
__junctor_mark() {
	local status=$?
	if [ -n "$__junctor_began" ]; then printf '\e]133;D;%s\a' "$status"; fi
	__junctor_began=1
	printf '\e]133;A\a'
}
PROMPT_COMMAND=__junctor_mark
PS1="$PS1"'\[\e]133;B\a\]'
`
	zshMarks = `PS1='pty> '
preexec() { printf '\e]133;C\a' }
precmd() {
	local st=$?
	if [[ -n $__junctor_began ]]; then printf '\e]133;D;%s\a' $st; fi
	__junctor_began=1
	printf '\e]133;A\a'
}
PS1="$PS1"$'%{\e]133;B\a%}'
`
)
