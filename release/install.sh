#!/bin/sh
# Installs junctor from a folder: an unpacked archive, or a folder of archives with their
# SHA256SUMS. It reaches no network. What is installed is compared with its checksum
# first, tried, and put in place by rename: there is the old one or the new one, and
# nothing between. Running it again upgrades, or finds that nothing is to be done.
set -eu
umask 022

usage() {
	cat <<'TEXT'
usage: install.sh [--from PATH] [--prefix DIR] [--systemd | --systemd=user | --systemd=system]
       install.sh --uninstall [--prefix DIR] [--systemd...]

  --from PATH   an unpacked archive, an archive, or a folder of archives with SHA256SUMS
                (default: the folder of this script)
  --prefix DIR  the program becomes DIR/bin/junctor
                (default: /usr/local for root, else ~/.local)
  --systemd     put the systemd unit too: the system's for root, else the user's
  --uninstall   remove the program, and with --systemd the unit; what the server has
                kept stays

DESTDIR, where it is set, is put before every path that is written.
TEXT
}

say() { printf '%s\n' "$*"; }
fail() {
	printf 'install.sh: %s\n' "$*" >&2
	exit 1
}
wrong() {
	printf 'install.sh: %s\n' "$*" >&2
	usage >&2
	exit 2
}

temp='' half=''
# shellcheck disable=SC2329 # by trap
clean() {
	if [ -n "$half" ]; then rm -f -- "$half"; fi
	if [ -n "$temp" ]; then rm -rf -- "$temp"; fi
}
trap clean EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

from='' prefix='' unit='' uninstall=''
root=''
if [ "$(id -u)" = 0 ]; then root=1; fi
while [ $# -gt 0 ]; do
	case $1 in
	--from | --prefix)
		if [ $# -lt 2 ] || [ -z "$2" ]; then wrong "$1 needs a value"; fi
		if [ "$1" = --from ]; then from=$2; else prefix=$2; fi
		shift
		;;
	--from=?*) from=${1#*=} ;;
	--prefix=?*) prefix=${1#*=} ;;
	--systemd) if [ -n "$root" ]; then unit=system; else unit=user; fi ;;
	--systemd=user | --systemd=system) unit=${1#*=} ;;
	--uninstall) uninstall=1 ;;
	-h | --help)
		usage
		exit 0
		;;
	*) wrong "$1 is not known" ;;
	esac
	shift
done

if [ -z "$prefix" ]; then
	if [ -n "$root" ]; then prefix=/usr/local; else prefix=${HOME:?is not set, and neither is --prefix}/.local; fi
fi
case $prefix in
/*) ;;
*) prefix=$(pwd)/$prefix ;;
esac
dest=${DESTDIR:-}
program=$prefix/bin/junctor

# In a unit, other characters would be more than themselves.
case $unit$prefix in
user*[!A-Za-z0-9/._@+,=-]* | system*[!A-Za-z0-9/._@+,=-]*)
	fail "the prefix $prefix has characters that systemd would read as something else; choose another one, or put the unit by hand"
	;;
esac

case $unit in
system) units=/etc/systemd/system ;;
user) units=${XDG_CONFIG_HOME:-${HOME:?is not set}/.config}/systemd/user ;;
esac

# Where the unit is only packed, others put it.
if [ "$unit" = system ] && [ -z "$root$dest" ]; then
	fail "the system's unit needs root: run this with sudo, or have a unit of your own with --systemd=user; nothing was changed"
fi

# manager asks systemd for something; a system that does not run it needs nothing.
manager() {
	if [ -n "$dest" ] || ! command -v systemctl >/dev/null 2>&1; then return 0; fi
	if [ "$unit" = user ]; then systemctl --user "$@" >/dev/null 2>&1 || true; else systemctl "$@" >/dev/null 2>&1 || true; fi
}

if [ -n "$uninstall" ]; then
	if [ -n "$unit" ] && [ -e "$dest$units/junctor.service" ]; then
		manager disable --now junctor.service
		rm -f -- "$dest$units/junctor.service"
		manager daemon-reload
		say "removed $dest$units/junctor.service"
	fi
	if [ -e "$dest$program" ]; then
		rm -f -- "$dest$program"
		say "removed $dest$program"
	else
		say "there is no $dest$program"
	fi
	say "what a server has kept is in its home still (~/.local/share/junctor, or /var/lib/junctor)"
	exit 0
fi

# The system's unit has ProtectHome=yes.
if [ "$unit" = system ]; then
	there=$prefix # as much of it as is there, by its real name
	while [ ! -d "$there" ]; do there=$(dirname -- "$there"); done
	for place in "$prefix" "$(cd -P -- "$there" 2>/dev/null && pwd)"; do
		case $place/ in
		/home/* | /root/* | /run/user/*)
			fail "the system's unit sees no home folders, so it could not start $program; leave --prefix out, choose one such as --prefix /opt/junctor, or have a unit of your own, without root, with --systemd=user; nothing was changed"
			;;
		esac
	done
fi

if command -v sha256sum >/dev/null 2>&1; then
	sha256() { sha256sum <"$1"; }
elif command -v shasum >/dev/null 2>&1; then
	sha256() { shasum -a 256 <"$1"; }
else
	fail "neither sha256sum nor shasum is here, and nothing is installed unchecked"
fi

# check FOLDER NAME compares a file with its line in the folder's SHA256SUMS.
check() {
	[ -f "$1/SHA256SUMS" ] || fail "$1 has no SHA256SUMS, and nothing is installed unchecked"
	[ -f "$1/$2" ] || fail "$1 has no $2"
	want=$(awk -v name="$2" '$2 == name || $2 == "*" name { print $1 }' "$1/SHA256SUMS")
	[ -n "$want" ] || fail "$1/SHA256SUMS does not name $2"
	is=$(sha256 "$1/$2") || fail "$1/$2 cannot be read"
	[ "${is%% *}" = "$want" ] || fail "$1/$2 is not what was released: its SHA-256 is ${is%% *}, and should be $want"
}

if [ -z "$from" ]; then from=$(dirname -- "$0"); fi
[ -e "$from" ] || fail "$from does not exist"

archive=''
if [ -f "$from" ]; then
	archive=$(basename -- "$from")
	from=$(dirname -- "$from")
fi
from=$(cd -- "$from" && pwd)

if [ -z "$archive" ] && [ ! -f "$from/junctor" ]; then
	system=$(uname -s | tr '[:upper:]' '[:lower:]')
	case $system in
	linux | darwin) ;;
	*) fail "there is no archive for $system; on Windows, unpack the zip file by hand" ;;
	esac
	machine=$(uname -m)
	case $machine in
	x86_64 | amd64) machine=amd64 ;;
	aarch64 | arm64) machine=arm64 ;;
	*) fail "there is no archive for $machine" ;;
	esac
	for found in "$from"/junctor_*_"${system}_$machine".tar.gz; do
		[ -f "$found" ] || fail "$from has neither junctor nor an archive for $system on $machine"
		[ -z "$archive" ] || fail "$from has several archives for $system on $machine; choose one with --from FILE"
		archive=$(basename -- "$found")
	done
fi

if [ -n "$archive" ]; then
	check "$from" "$archive"
	temp=$(mktemp -d "${TMPDIR:-/tmp}/junctor-install.XXXXXX")
	tar -xzf "$from/$archive" -C "$temp" || fail "$from/$archive cannot be unpacked"
	from=$temp/${archive%.tar.gz}
	[ -d "$from" ] || fail "$archive does not hold the folder ${archive%.tar.gz}"
fi

check "$from" junctor
case $unit in
system) source=junctor.service ;;
user) source=junctor.user.service ;;
esac
if [ -n "$unit" ]; then check "$from" "$source"; fi

# put FILE TARGET MODE installs by rename, from a copy beside the target.
put() {
	remedy='' # the place of a unit cannot be chosen
	if [ "$3" = 755 ]; then remedy='; choose another place with --prefix'; fi
	mkdir -p -- "$(dirname -- "$2")" || fail "$(dirname -- "$2") cannot be made$remedy"
	half=$2.new.$$
	cp -- "$1" "$half" || fail "$2 cannot be written$remedy"
	chmod "$3" "$half"
	if [ "$3" = 755 ]; then
		"$half" version >/dev/null 2>&1 || fail "the program does not run here ($(uname -sm)); nothing was changed"
	fi
	mv -f -- "$half" "$2"
	half=''
}

if [ -f "$dest$program" ] && cmp -s -- "$from/junctor" "$dest$program"; then
	say "$dest$program is this version already"
else
	put "$from/junctor" "$dest$program" 755
	say "installed $dest$program: $("$dest$program" version)"
fi

if [ -n "$unit" ]; then
	place=$units/junctor.service
	if [ -z "$temp" ]; then temp=$(mktemp -d "${TMPDIR:-/tmp}/junctor-install.XXXXXX"); fi
	sed "s|^ExecStart=[^ ]*|ExecStart=$program|" "$from/$source" >"$temp/unit"
	if [ "$unit" = system ] && [ -n "$root" ] && [ -z "$dest" ] && ! id junctor >/dev/null 2>&1; then
		useradd --system --user-group --home-dir /var/lib/junctor --no-create-home --shell /usr/sbin/nologin junctor ||
			fail "the user junctor, whom the unit runs as, cannot be made; make it, and run this again"
	fi
	if [ -f "$dest$place" ] && cmp -s -- "$temp/unit" "$dest$place"; then
		say "$dest$place is this version already"
	else
		if [ -f "$dest$place" ]; then cp -p -- "$dest$place" "$dest$place.before"; fi
		put "$temp/unit" "$dest$place" 644
		manager daemon-reload
		say "installed $dest$place; settings of yours belong in a drop-in (systemctl edit)"
	fi
	if [ "$unit" = user ]; then
		say "start it:    systemctl --user enable --now junctor"
		say "upgraded it: systemctl --user restart junctor"
	else
		say "start it:    systemctl enable --now junctor"
		say "upgraded it: systemctl restart junctor"
	fi
fi

case :$PATH: in
*":$prefix/bin:"*) ;;
*) say "$prefix/bin is not in PATH" ;;
esac
