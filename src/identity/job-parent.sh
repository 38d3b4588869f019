#!/bin/sh
# The parent of one run: a process of its own, so that jobs share no fate and wait for nobody's helper, and a shell, as a
# thousand of them are to fit. It is started with the identity of the job's owner, makes sure that it has it, runs the
# command as leader of a session of its own, and ends what the command leaves behind.
#
# Arguments: lines that /proc/self/status must have, one a word, "." after the last; the id of the run; `end` or `keep`,
# what is done with those it leaves behind; the directory; the command; variables for it, as NAME=value.
# Standard input: a byte, or its end as the daemon is gone, ends the run: SIGTERM for its group, SIGKILL 5 s later.
# Standard output and error are the command's. Descriptor 3: `refused WHY`, or `begun`, and `exit STATUS LEFT` at its end,
# STATUS as in `$?`, LEFT how many were left behind and ended.
set -u
exec 4<&0 </dev/null

. "${0%/*}/expect-identity.sh"
expect_identity "$@" || {
  echo "refused wrong identity: its status does not say $expected" >&3
  exit 77
}
shift $((expected_words - 1))
run=$2 left=$3 dir=$4 command=$5
shift 5
cd "$dir" || {
  echo "refused directory \"$dir\" cannot be entered" >&3
  exit 78
}
umask 022

# In seconds since the host's boot.
read -r began _ </proc/uptime

# Said before: a command that kills its parent at once has begun, too.
echo begun >&3
(
  export "SVC_RUN_ID=$run" "$@"
  exec setsid /bin/sh -c "$command"
) 3>&- 4<&- &
job=$!

# Prints when a process started, field 22 of its stat: with the pid that names it for good.
started() {
  read -r stat <"/proc/$1/stat" || return 0
  set -- ${stat##*) }
  echo "${20}"
}

# Prints the descendants of a process, as PID:START.
descendants() {
  for children in /proc/"$1"/task/*/children; do
    pids=
    read -r pids <"$children" || :
    for pid in $pids; do
      echo "$pid:$(started "$pid")"
      (descendants "$pid")
    done
  done
}

# Sets `found` to the living processes of the job's session and those that have the run's id in their environment. Only
# processes that came since can be: as long as those are few the others are not looked at. Of a short run they may be more,
# as among hundreds that begin at once: nobody gets through all ids of a host within seconds.
find_left() {
  found= files= few=500
  read -r now _ </proc/uptime
  [ $((${now%.*} - ${began%.*})) -gt 10 ] || few=3000
  read -r _ _ _ _ last </proc/loadavg
  if [ "$last" -ge "$job" ] && [ $((last - job)) -le "$few" ]; then
    pid=$job
    while [ "$pid" -lt "$last" ]; do
      pid=$((pid + 1))
      if [ "$pid" != "${control-}" ] && [ -d "/proc/$pid" ]; then files="$files /proc/$pid/environ /proc/$pid/stat"; fi
    done
    [ -z "$files" ] || search $files
  else
    files=all
    for digit in 1 2 3 4 5 6 7 8 9; do search /proc/$digit*/environ /proc/$digit*/stat; done
  fi
}

search() {
  hits=$(LC_ALL=C grep -lsaE -e "SVC_RUN_ID=$run" -e "^[0-9]+ \(.*\) [RSDTtIKP] [0-9]+ [0-9]+ $job " "$@")
  [ -z "$hits" ] || found="$found $hits"
}

# Kills what is left, and what it forks meanwhile, until nothing is; `ended` counts them. Who executes a program shows no
# environment for a moment, and who forks and ends leaves somebody who was not looked at: where anybody is there who came since,
# a look that finds nobody is followed by another.
end_left() {
  killed=' ' ended=0 round=0 empty=0
  while [ "$round" -lt 100 ]; do
    find_left
    if [ -z "$found" ]; then
      empty=$((empty + 1))
      [ -n "$files" ] && [ "$empty" -lt 2 ] || return 0
      sleep 0.02
      continue
    fi
    empty=0
    for file in $found; do
      pid=${file#/proc/}
      pid=${pid%/*}
      kill -KILL "$pid" || continue
      case $killed in
      *" $pid "*) ;;
      *) killed="$killed$pid " ended=$((ended + 1)) ;;
      esac
    done
    sleep 0.05
    round=$((round + 1))
  done
}

# Ends the run when it is told to.
(
  read -r _ <&4 || :
  exec 4<&-
  trap '' TERM
  family=$(descendants "$job")
  kill -TERM -- "-$job" || kill -TERM "$job"
  tenths=0
  while [ "$tenths" -lt 50 ] && kill -0 "$job"; do
    sleep 0.1
    tenths=$((tenths + 1))
  done
  kill -KILL -- "-$job" || kill -KILL "$job"
  # Who has another session and no id is known by its parents alone, which live no longer.
  for one in $family; do
    [ "$(started "${one%:*}")" != "${one#*:}" ] || kill -KILL "${one%:*}"
  done
  # Nobody else is there to do it when the job has killed its parent.
  kill -0 $$ || end_left
) >/dev/null 2>&1 3>&- &
control=$!

# It prints nothing of its own, such as "Killed".
exec 4<&- >/dev/null 2>&1
wait "$job"
status=$?
kill -TERM "$control"
wait "$control" && left=end
ended=0
[ "$left" = keep ] || end_left
echo "exit $status $ended" >&3
