# Runs a program that reads untrusted files. It is started as a uid that owns nothing, checks that, and sets limits.
#
# Arguments: lines that /proc/self/status must have, one per argument, then "."; the most processes, or "-" for no
# limit; the directory; the program and its arguments.
# Descriptor 3: assignments of the program's variables, in the shell's syntax. They are applied after the program was
# found, and are not visible to others, as arguments would be.
set -eu

. "${0%/*}/expect-identity.sh"
expect_identity "$@" || {
  echo "wrong identity: its status does not say $expected" >&2
  exit 77
}
shift "$expected_words"
processes=$1 directory=$2
shift 2

# The daemon's limits may already be lower.
limit() {
  ulimit "$1" "$2" 2>/dev/null || :
}
limit -c 0
limit -d 1048576 # KiB of memory; compose uses 60,000 (1.29) to 110,000 (2.40) for 1,000 services
limit -f 131072 # blocks of 512 bytes
limit -n 512
limit -t 120 # seconds of CPU time
# The shells' options differ.
[ "$processes" = - ] || ulimit -u "$processes" 2>/dev/null || ulimit -p "$processes"

cd "$directory"
program=$(command -v "$1") || {
  echo "$1 is not installed" >&2
  exit 127
}
shift
variables=$(cat <&3)
exec 3<&-
umask 077
# A compose file may use these names for variables of its own, and compose would prefer svc's values to those of `.env`.
unset LANG LOGNAME OLDPWD SHELL TMPDIR
eval "$variables"
exec "$program" "$@"
