#!/usr/bin/env bash
# The replay on one host, agent, environments and logger on another. On both, with the same text:
#
#   export DREAMER_SECRET=...   # whoever does not know it is not served
#   examples/two_hosts.sh replay  REPLAY_HOST:2001 LEARNER_HOST:2002 LOGDIR --configs crafter
#   examples/two_hosts.sh learner REPLAY_HOST:2001 LEARNER_HOST:2002 LOGDIR --configs crafter
#
# Each host has a LOGDIR of its own. The replay serves until it gets SIGINT or SIGTERM.
set -euo pipefail

part=$1 replay=$2 logger=$3 logdir=$4
shift 4
case $part in
  replay) flags=(--script parallel_replay) ;;
  learner) flags=(--script parallel --run.remote_replay True) ;;
  *) echo "The first argument is replay or learner, found $part." >&2; exit 2 ;;
esac
exec "${PYTHON:-python}" "$(dirname "$0")/../dreamerv3/main.py" "${flags[@]}" \
    --run.replay_addr "$replay" --run.logger_addr "$logger" --logdir "$logdir" "$@"
