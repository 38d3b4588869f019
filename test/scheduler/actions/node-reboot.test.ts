/** Reboots with a harmless command. */
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import { HostReboot } from "../../../src/host/reboot.ts";
import { createNodeRebootAction } from "../../../src/scheduler/actions/node-reboot.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { act } from "../support/act.ts";

const action = { type: "node_reboot" } as const;

function prepare(command: readonly string[]) {
  const userHelpers = createUserHelpers();
  const clock = new FakeClock("2026-01-01T00:00:00Z");
  const log = { warn: () => undefined };
  const reboot = createNodeRebootAction(new HostReboot({ command, userHelpers, clock, log }));
  return { clock, userHelpers, reboot };
}

test("the command runs 3 s after the action, and its failure is reported", async (t) => {
  const { clock, userHelpers, reboot } = prepare(["sh", "-c", "echo no permission >&2; exit 1"]);
  await using _userHelpers = userHelpers;
  const { output, error, afterwards } = await act(reboot, action);
  t.is(error, undefined);
  t.is(output, "the host reboots in 3 s\n");
  let isOver = false;
  const over = afterwards?.(new AbortController().signal).finally(() => (isOver = true));
  clock.pass(2_999);
  await new Promise((resolve) => setImmediate(resolve));
  t.false(isOver);
  clock.pass(1);
  const failure = await t.throwsAsync<SvcError>(Promise.resolve(over), { instanceOf: SvcError });
  t.is(failure.message, "the reboot command sh -c echo no permission >&2; exit 1 failed: no permission");
});

test("a successful command reports nothing else", async (t) => {
  const { clock, userHelpers, reboot } = prepare(["true"]);
  await using _userHelpers = userHelpers;
  const { afterwards } = await act(reboot, action);
  const over = afterwards?.(new AbortController().signal);
  clock.pass(3_000);
  await t.notThrowsAsync(Promise.resolve(over));
});

test("the reboot can be canceled within the 3 s", async (t) => {
  const { clock, userHelpers, reboot } = prepare(["false"]);
  await using _userHelpers = userHelpers;
  const { afterwards } = await act(reboot, action);
  const stop = new AbortController();
  const over = afterwards?.(stop.signal);
  clock.pass(2_000);
  stop.abort(new Error("not now"));
  await t.throwsAsync(Promise.resolve(over), { message: "not now" });
  clock.pass(60_000);
});

test("a regular user's job cannot reboot the host", async (t) => {
  const { userHelpers, reboot } = prepare(["true"]);
  await using _userHelpers = userHelpers;
  const error = await t.throwsAsync<SvcError>(act(reboot, action, { ownerUid: 1000, isRoot: false }));
  t.is(error.code, "permission_denied");
});
