#!/bin/sh
# Becomes a program at a terminal. It is started as leader of a session without a terminal, with the identity of the user,
# and makes sure that it has it.
#
# Arguments: lines that /proc/self/status must have, one a word, "." after the last; the terminal; the directory; the program
# and its arguments. Descriptor 3: commands that export the program's variables, as arguments can be read by everybody.
set -u
. "${0%/*}/expect-identity.sh"
expect_identity "$@" || {
  echo "svc: wrong identity: the process's status does not say $expected" >&2
  exit 77
}
shift $expected_words
terminal=$1 dir=$2
shift 2
# Opening it makes it the session's.
exec <>"$terminal" >&0 2>&0
cd "$dir" || exit 78
umask 022
eval "$(cat <&3)"
exec 3<&-
exec "$@"
