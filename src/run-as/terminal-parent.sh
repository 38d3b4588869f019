#!/bin/sh
# Becomes a program of a console. It is started as the user, as leader of a session without a terminal, and checks that
# it runs as the user.
#
# Arguments: lines that /proc/self/status must have, one per argument, then "."; the terminal, or empty; the directory;
# the program and its arguments. Descriptor 3: commands that export the program's variables, because everybody can read
# arguments. Descriptor 4: input of `session-guard.sh`.
set -u
. "${0%/*}/expect-identity.sh"
expect_identity "$@" || {
  echo "svc: wrong identity: the process's status does not say $expected" >&2
  exit 77
}
shift $expected_words
terminal=$1 dir=$2
shift 2
# Not a child of the program, which may wait for all its children.
(setsid /bin/sh "${0%/*}/session-guard.sh" $$ <&4 >/dev/null 2>&1 3<&- 4<&- &)
exec 4<&-
# Opening the terminal makes it the controlling terminal of the session.
[ -z "$terminal" ] || exec <>"$terminal" >&0 2>&0
cd "$dir" || exit 78
umask 022
eval "$(cat <&3)"
exec 3<&-
# Errors of exec would begin with the name of this script.
if [ -z "$(command -v -- "$1")" ]; then
  echo "svc: command not found: \"$1\"" >&2
  exit 127
fi
case $1 in */*) [ -x "$1" ] && [ ! -d "$1" ] || {
  echo "svc: \"$1\" cannot be executed" >&2
  exit 126
} ;; esac
exec "$@"
