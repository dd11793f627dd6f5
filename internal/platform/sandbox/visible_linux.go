package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/platform/sandbox/jail"
)

// systemDirs returns the directories that programs need to run; on most machines all but the
// first are links into it.
func systemDirs() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
}

// systemFiles returns the parts of /etc that loaders and libraries read.
func systemFiles() []string {
	return []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/mime.types",
		"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/protocols",
		"/etc/services",
	}
}

// networkFiles returns the files that a run with the machine's own network may read as well.
func networkFiles() []string {
	return []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf"}
}

func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
}

// procFiles returns the files by which runtimes inspect the machine. At T2 the rest of
// /proc is hidden, because it shows other processes.
func procFiles() []string {
	return []string{"/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version", "/proc/filesystems"}
}

// credentialDirs returns the names that programs may never read, even if the operator lists
// them.
func credentialDirs() []string {
	return []string{
		".ssh", ".aws", ".gnupg", ".config/gcloud", ".kube", ".docker", ".mozilla", ".config/google-chrome", ".config/chromium",
		".netrc", ".azure", ".password-store",
	}
}

// system is the part of the machine that every private root shows.
type system struct {
	at   time.Time
	room *jail.Room
	// stamp identifies the files. A spare helper whose private root has another stamp is
	// discarded, because files were replaced since.
	stamp string
}

// systemTTL is how long the list of the machine's files is cached. It is short, because
// package managers replace them.
const systemTTL = 10 * time.Second

// system returns the machine's parts of a private root. The result is cached for a short
// time, because it takes a hundred look-ups. The files belong to root, so they are not
// pinned by identity.
func (b *Box) system(noProc, bare bool) system {
	if bare {
		return system{room: &jail.Room{SkipProc: noProc}, stamp: "bare"}
	}
	s := b.parts()
	if noProc {
		room := *s.room
		room.SkipProc, s.room = true, &room
	}
	return s
}

func (b *Box) parts() system {
	b.spares.mu.Lock()
	defer b.spares.mu.Unlock()
	if time.Since(b.shared.at) < systemTTL {
		return b.shared
	}
	s := system{at: time.Now(), room: &jail.Room{Links: map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
		"/dev/shm": jail.TempDir, "/var/tmp": jail.TempDir, "/etc/mtab": "/proc/self/mounts",
	}}}
	var stamp strings.Builder
	add := func(path string) {
		if m, ok := mountOf(path, path); ok {
			fmt.Fprintf(&stamp, "%s %d %d\n", m.Source, m.Dev, m.Ino)
			m.Dev, m.Ino = 0, 0
			s.room.Mounts = append(s.room.Mounts, m)
		}
	}
	for _, dir := range systemDirs() {
		if to, err := os.Readlink(dir); err == nil {
			s.room.Links[dir] = to
			fmt.Fprintf(&stamp, "%s > %s\n", dir, to)
			continue
		}
		add(dir)
	}
	for _, path := range slices.Concat(systemFiles(), devices()) {
		add(path)
	}
	s.stamp = stamp.String()
	b.shared = s
	return s
}
