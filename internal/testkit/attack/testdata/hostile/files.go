//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func relativePaths() {
	up := strings.Repeat("../", 24)
	try("read by a relative path", reads(up+v.File))
	try("write by a relative path", writes(up+v.File, os.O_RDWR))
	try("truncate by a relative path", os.Truncate(up+v.File, 0))
	try("make by a relative path", writes(up+v.Dir+"/made", os.O_CREATE|os.O_WRONLY))
	try("read a neighbour's file", reads(filepath.Join("../..", filepath.Base(filepath.Dir(filepath.Dir(v.OtherWork))), "work", "secret")))
	if v.Self == "/job" { // Landlock does not cover looking at names
		try("see the other extensions", func() error {
			_, err := os.Stat("../../" + filepath.Base(filepath.Dir(filepath.Dir(v.OtherWork))))
			return err
		}())
	}
	try("list what holds all extensions", lists(up+v.Extensions))
	try("climb out of a handle", func() error {
		fd, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		got, err := unix.Openat(fd, up+v.File, unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(got)
		}
		return err
	}())
}

func absolutePaths() {
	try("read /etc/shadow", opens("/etc/shadow"))
	try("read a canary", reads(v.File))
	try("write a canary", writes(v.File, os.O_WRONLY|os.O_APPEND))
	try("read a file of the home", reads(v.HomeFile))
	try("read another extension's work", reads(v.OtherWork))
	try("write another extension's work", writes(v.OtherWork, os.O_WRONLY|os.O_APPEND))
	try("read the server's database", opens(v.Database))
	try("write the server's database", writes(v.Database, os.O_WRONLY))
	try("read the server's log", opens(v.Log))
	try("write the server's log", writes(v.Log, os.O_WRONLY|os.O_APPEND))
	try("read a token", opens(v.Token))
	try("list the extensions", lists(v.Extensions))
	try("make a file beside the extensions", writes(filepath.Join(v.Extensions, "made"), os.O_CREATE|os.O_WRONLY))
	try("write into the system", writes("/usr/junctor-hostile", os.O_CREATE|os.O_WRONLY))
	for _, device := range []string{"/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/tty"} {
		try("open "+device, opens(device))
	}
}

func links() {
	check(os.MkdirAll("links", 0o700))
	check(os.Symlink(v.File, "links/file"))
	check(os.Symlink("file", "links/chain"))
	check(os.Symlink(v.Dir, "links/dir"))
	base := filepath.Base(v.File)
	for _, name := range []string{"links/file", "links/chain", "links/dir/" + base} {
		try("read through "+name, reads(name))
		try("write through "+name, writes(name, os.O_WRONLY))
		try("truncate through "+name, os.Truncate(name, 0))
	}
	try("make through a linked folder", writes("links/dir/made", os.O_CREATE|os.O_WRONLY))
	try("remove through a linked folder", os.Remove("links/dir/"+base))
	// What the server may touch later leads outside from now on.
	for _, name := range []string{"config.json", "mark", ".trash"} {
		_ = os.RemoveAll(name)
		check(os.Symlink(v.File, name))
	}
	for _, name := range []string{"artifacts", "cache", "tmp"} {
		_ = os.RemoveAll(name)
		check(os.Symlink(v.Dir, name))
	}
}

func hardLinks() {
	try("link a file in", os.Link(v.File, "hard"))
	try("link it by its descriptor", func() error {
		fd, err := unix.Open(v.File, unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, "hard2", unix.AT_SYMLINK_FOLLOW)
	}())
	try("link another extension's file in", os.Link(v.OtherWork, "hard3"))
	for _, name := range []string{"hard", "hard2", "hard3"} {
		try("modify "+name, os.WriteFile(name+"/x", []byte("changed"), 0o600))
		try("append to "+name, writes(name, os.O_WRONLY|os.O_APPEND))
	}
	check(os.WriteFile("mine", []byte("mine"), 0o600))
	try("link a file out", os.Link("mine", filepath.Join(v.Dir, "linked")))
}

func renames() {
	check(os.WriteFile("mine", []byte("mine"), 0o600))
	try("move a file in", os.Rename(v.File, "moved"))
	try("move a file out", os.Rename("mine", filepath.Join(v.Dir, "moved")))
	try("exchange two files", unix.Renameat2(unix.AT_FDCWD, "mine", unix.AT_FDCWD, v.File, unix.RENAME_EXCHANGE))
	try("move the work folder away", os.Rename(v.Self, v.Self+"-gone"))
	try("move a file over the package's manifest", os.Rename("mine", "../manifest.json"))
	try("move a folder out", func() error {
		check(os.MkdirAll("folder", 0o700))
		return os.Rename("folder", filepath.Join(v.Dir, "folder"))
	}())
}

func attributes() {
	f := v.File
	claims("chmod", unix.Chmod(f, 0o777))
	claims("fchmodat2", call(unix.SYS_FCHMODAT2, ^uintptr(99), ptr(f), 0o777, 0))
	claims("chown", unix.Chown(f, os.Getuid(), os.Getgid()))
	claims("lchown", unix.Lchown(f, 1, 1))
	claims("utimes", unix.Utimes(f, []unix.Timeval{{Sec: 1}, {Sec: 1}}))
	claims("utimensat", unix.UtimesNanoAt(unix.AT_FDCWD, f, []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0))
	claims("setxattr", unix.Setxattr(f, "user.hostile", []byte("x"), 0))
	claims("lsetxattr", unix.Lsetxattr(f, "user.hostile", []byte("x"), 0))
	claims("removexattr", unix.Removexattr(f, "user.mine"))
	claims("truncate", unix.Truncate(f, 1))
	claims("by an O_PATH descriptor", func() error {
		fd, err := unix.Open(f, unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), 0o777, 0)
	}())
	claims("setxattrat", call(463, ^uintptr(99), ptr(f), 0, ptr("user.hostile"), 0, 0))
	claims("open to truncate", writes(f, os.O_WRONLY|os.O_TRUNC))
	claims("fallocate", func() error {
		fd, err := unix.Open(f, unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		return unix.Fallocate(fd, 0, 0, 1<<20)
	}())
}
