#!/bin/sh
# Before the files: the user that the service runs as, and that owns its home.
set -e
if ! getent passwd junctor >/dev/null 2>&1; then
	useradd --system --user-group --home-dir /var/lib/junctor --no-create-home --shell /usr/sbin/nologin junctor
fi
