#!/bin/sh
# What Apache's image of BookKeeper begins with, for Kubernetes files that name it: directories and the metadata store from
# its variables, a cluster if there is none yet, then the command: `entrypoint.sh bookie`, or `… bin/bookkeeper bookie`.
# SPDX-License-Identifier: Apache-2.0
set -eu
data=${BK_DATA_DIR:-/data/bookkeeper}
export BK_bookiePort="${BK_bookiePort:-${PORT0:-${BOOKIE_PORT:-3181}}}"
export BK_ledgerDirectories="${BK_ledgerDirectories:-$data/ledgers}"
export BK_indexDirectories="${BK_indexDirectories:-$data/index}"
[ -n "${BK_journalDirectories-}" ] || export BK_journalDirectory="${BK_journalDirectory:-$data/journal}"
if [ -n "${BK_CLUSTER_ROOT_PATH-}" ]; then
  export BK_zkLedgersRootPath="${BK_zkLedgersRootPath:-$BK_CLUSTER_ROOT_PATH/ledgers}"
fi

case ${1:?a command is missing: bookie, autorecovery, or another} in
  */bin/bookkeeper) shift; set -- bookkeeper "$@" ;;
  bookie | autorecovery | shell) set -- bookkeeper "$@" ;;
esac
until bookkeeper shell whatisinstanceid || bookkeeper shell initnewcluster; do sleep 3; done
exec "$@"
