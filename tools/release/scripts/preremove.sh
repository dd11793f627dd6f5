#!/bin/sh
# On removal (deb: remove, rpm: 0), not on an upgrade.
set -e
case ${1:-} in
remove | 0)
	if [ -d /run/systemd/system ]; then systemctl disable --now junctor.service || true; fi
	;;
esac
