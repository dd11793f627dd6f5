//go:build !unix

package gitcmd

func owner(string) (uid, gid int, own bool, err error) { return 0, 0, true, nil }

func umask() string { return "0022" }
