#!/usr/bin/env bash
# run.sh CASE...: measures these cases. README.md says what they are. Exits with 1 if a bar is missed.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TERM_COLOR=never
export STATIONMASTER_PEERS_BUILD=${CARGO_TARGET_DIR:-$PWD/../../target}/peers
export STATIONMASTER_PEERS_SOURCE=$PWD
STATIONMASTER_PEERS_FOLDER=$(mktemp -d)
export STATIONMASTER_PEERS_FOLDER

# However it ends: no stopped process and no server stays behind.
clean() {
  local folder=$STATIONMASTER_PEERS_FOLDER
  if [[ -f $folder/frozen ]]; then
    xargs -r kill -KILL <"$folder/frozen" 2>/dev/null || true
  fi
  if [[ -f $folder/data/postmaster.pid ]]; then
    kill -QUIT "$(head -n 1 "$folder/data/postmaster.pid")" || true
  fi
  sleep 0.5
  rm -rf "$folder"
}
trap clean EXIT

cargo build --release --quiet --target-dir "$STATIONMASTER_PEERS_BUILD"
"$STATIONMASTER_PEERS_BUILD/release/stationmaster-peers" "$@"
