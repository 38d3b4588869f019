# Checks that this process runs as the expected user.
#
# expect_identity LINE… . …: succeeds if /proc/self/status has each of the lines before the ".".
# Sets `expected_words` to their number, including the ".".
# On failure, `expected` is the line that is missing.
expect_identity() {
  expected_words=1
  identity=/
  while read -r line; do
    case $line in
    Uid:* | Gid:* | Groups:* | Cap*) identity="$identity$line/" ;;
    # Stop here: the shell reads byte by byte, a third of the file remains, and hundreds of runs can start at once.
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
