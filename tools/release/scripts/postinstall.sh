#!/bin/sh
# A new installation is not started: the operator enables the service. An upgrade restarts
# a service that runs.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart junctor.service || true
fi
