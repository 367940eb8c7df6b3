#!/bin/bash
# Founds the group of placement, unless it is there: found.sh ID=URL…
set -euo pipefail
OPENCODE_CLOUD_CLUSTER_SECRET=$(cat "$CLUSTER_SECRET_FILE")
OPENCODE_CLOUD_DATABASE_URL=$(cat "$DATABASE_URL_FILE")
export OPENCODE_CLOUD_CLUSTER_SECRET OPENCODE_CLOUD_DATABASE_URL

# Each member is asked by itself: one with an empty folder must not hide the group of the others.
for member in "$@"; do
  status=$(OPENCODE_CLOUD_PLACEMENT_PEERS=${member#*=} opencode-cloud placement status)
  if grep -q '"voter"' <<<"$status"; then
    echo "the group is founded already"
    exit
  fi
done
exec opencode-cloud placement init "$@"
