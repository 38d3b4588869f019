#!/bin/sh
# Becomes a program of a console's. It is started as leader of a session without a terminal, with the identity of the user,
# and makes sure that it has it.
#
# Arguments: lines that /proc/self/status must have, one a word, "." after the last; the terminal, empty for none; the
# directory; the program and its arguments. Descriptor 3: commands that export the program's variables, as arguments can be
# read by everybody. Descriptor 4: as `session-guard.sh` reads it.
set -u
. "${0%/*}/expect-identity.sh"
expect_identity "$@" || {
  echo "svc: wrong identity: the process's status does not say $expected" >&2
  exit 77
}
shift $expected_words
terminal=$1 dir=$2
shift 2
# No child of the program's, which may wait for all that it has.
(setsid /bin/sh "${0%/*}/session-guard.sh" $$ <&4 >/dev/null 2>&1 3<&- 4<&- &)
exec 4<&-
# Opening it makes it the session's.
[ -z "$terminal" ] || exec <>"$terminal" >&0 2>&0
cd "$dir" || exit 78
umask 022
eval "$(cat <&3)"
exec 3<&-
# What exec says of these would be in the name of this script.
if ! command -v -- "$1" >/dev/null; then
  echo "svc: there is no command \"$1\"" >&2
  exit 127
fi
case $1 in */*) [ -x "$1" ] && [ ! -d "$1" ] || {
  echo "svc: \"$1\" cannot be executed" >&2
  exit 126
} ;; esac
exec "$@"
