# For programs that begin as somebody's: whether they are.
#
# expect_identity LINE… . …: whether /proc/self/status has each of the lines before the "."; `expected_words` is then how many
# arguments these are, the "." among them, and otherwise `expected` the line that is missing.
expect_identity() {
  expected_words=1
  identity=/
  while read -r line; do
    case $line in
    Uid:* | Gid:* | Groups:* | Cap*) identity="$identity$line/" ;;
    # The last of them: a shell reads byte by byte, a third of the file is still to come, and hundreds of runs begin at once.
    NoNewPrivs:*) identity="$identity$line/" && break ;;
    esac
  done </proc/self/status
  while [ "$1" != . ]; do
    expected=$1
    case $identity in
    */"$1"/*) ;;
    *) return 1 ;;
    esac
    expected_words=$((expected_words + 1))
    shift
  done
}
