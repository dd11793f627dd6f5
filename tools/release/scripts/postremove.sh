#!/bin/sh
# The home in /var/lib/junctor, with its tokens and records, and the user who owns it stay.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
