/** What is made of the last words of a git that failed. */
import test from "ava";
import { gitFailure } from "../../src/packages/git-failure.ts";

const ended = { exitCode: 128, signal: null };

test("of a host that ssh does not find it is told what ssh said, not what git says after it", (t) => {
  const { reason, message } = gitFailure(
    "git@nowhere.invalid:x/y.git",
    [
      "ssh: Could not resolve hostname nowhere.invalid: Name or service not known",
      "fatal: Could not read from remote repository.",
      "Please make sure you have the correct access rights",
    ],
    ended,
  );
  t.is(reason, "unavailable");
  t.is(
    message,
    "git failed with git@nowhere.invalid:x/y.git: ssh: Could not resolve hostname nowhere.invalid: Name or service not known",
  );
});

test("else it is the last of git's own sentences", (t) => {
  const { reason, message } = gitFailure("https://a/b", ["warning: one", "fatal: two", "three"], ended);
  t.deepEqual([reason, message], ["git_failed", "git failed with https://a/b: two"]);
});
