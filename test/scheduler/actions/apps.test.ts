/** Actions of jobs on apps and on this node. */
import test from "ava";
import type { AppCaller } from "../../../src/apps/records/app-registry.ts";
import type { Backups } from "../../../src/backups/backups.ts";
import { SvcError } from "../../../src/errors.ts";
import { HostReboot } from "../../../src/host/reboot.ts";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import {
  createLifecycleAction,
  type LifecycleActionOptions,
  type LifecycleVerb,
} from "../../../src/scheduler/actions/app-lifecycle.ts";
import {
  createAppUpdateAction,
  type AppUpdateActionOptions,
} from "../../../src/scheduler/actions/app-update.ts";
import { createBackupAction } from "../../../src/scheduler/actions/backup.ts";
import { createNodeRebootAction } from "../../../src/scheduler/actions/node-reboot.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { act, type ActOptions } from "../support/act.ts";

// Calls of app actions and their callers; real apps are in the end-to-end tests.

interface FakeOptions {
  fail?: Readonly<Partial<Record<string, Error>>>;
  upToDate?: boolean;
  /** The newest version. */
  to?: string;
  hang?: string;
}

/** Apps that record the requests. */
function fakeApps({ fail = {}, upToDate = false, to = "2.0", hang }: FakeOptions = {}) {
  const asked: string[] = [];
  const callers: AppCaller[] = [];
  const find = (id: string, caller: AppCaller) => {
    callers.push(caller);
    return Promise.resolve({ id });
  };
  const does =
    (verb: string) =>
    ({ id }: { id: string }) => {
      asked.push(`${verb} ${id}`);
      if (hang === verb) return new Promise<never>(() => undefined);
      const error = fail[verb];
      return error === undefined ? Promise.resolve({}) : Promise.reject(error);
    };
  const apps = {
    finder: { find, any: find },
    lifecycle: { start: does("start"), stop: does("stop"), restart: does("restart") },
    upgrader: {
      upgrade: ({ id }: { id: string }, { stopApp }: { stopApp: boolean }) =>
        does("upgrade")({ id: stopApp ? `${id} stopped for it` : id }).then(() => ({
          upToDate,
          from: "1.0",
          to: upToDate ? "1.0" : to,
        })),
    },
  };
  return { asked, callers, apps: apps as unknown as LifecycleActionOptions & AppUpdateActionOptions };
}

for (const [verb, type] of [
  ["start", "app_start"],
  ["stop", "app_stop"],
  ["restart", "app_restart"],
] as const satisfies [LifecycleVerb, string][]) {
  for (const [who, options, root] of [
    ["root", {}, true],
    ["a user", { ownerUid: 1000, isRoot: false }, false],
  ] as [string, ActOptions, boolean][]) {
    test(`${type} as ${who}`, async (t) => {
      const { apps, asked, callers } = fakeApps();
      t.deepEqual(await act(createLifecycleAction(apps, verb), { type, app: "a" }, options), { output: "" });
      t.deepEqual(asked, [`${verb} a`]);
      const uid = options.ownerUid ?? 0;
      t.deepEqual(callers, [{ uid, root, ownerUid: uid }]);
    });
  }
}

test("a continuing operation does not delay a canceled run", async (t) => {
  const { apps } = fakeApps({ hang: "stop" });
  const stop = new AbortController();
  const running = act(
    createLifecycleAction(apps, "stop"),
    { type: "app_stop", app: "a" },
    { signal: stop.signal },
  );
  stop.abort(new Error("too late"));
  await t.throwsAsync(running, { message: "too late" });
});

const update = (options: FakeOptions) => {
  const { apps, asked } = fakeApps(options);
  return { asked, run: act(createAppUpdateAction(apps), { type: "app_update", app: "a" }) };
};

test("an app is upgraded, and stopped for it if it runs", async (t) => {
  const { asked, run } = update({});
  t.deepEqual(await run, { output: "a upgraded from 1.0 to 2.0\n" });
  t.deepEqual(asked, ["upgrade a stopped for it"]);
});

test("it reports that no update is available", async (t) => {
  t.is((await update({ upToDate: true }).run).output, "a 1.0 is up to date\n");
  t.is((await update({ to: "1.0" }).run).output, "a 1.0 reinstalled from its source\n");
});

test("a failed upgrade is the run's error", async (t) => {
  const { run } = update({ fail: { upgrade: new SvcError("build_failed", "the build failed") } });
  t.is((await t.throwsAsync(run)).message, "the build failed");
});

test("a backup goes to the storages of its job, and fails if one of them does not get it", async (t) => {
  const asked: unknown[] = [];
  const resultOf = (storage: string, error: string) => ({ storage, name: "n", error, removed: ["old"] });
  const create = (appId: string, request: object, { uid }: AppCaller) => {
    asked.push([appId, request, uid]);
    return Promise.resolve({ results: [resultOf("a", ""), resultOf("b", "it is full")], warnings: ["odd"] });
  };
  const action = { type: "backup", app: "web", storages: ["a", "b"], keep: 3 } as const;
  const backups = { create } as unknown as Backups;
  const { error, output } = await act(createBackupAction(backups), action, { ownerUid: 1000 });
  t.deepEqual(asked, [["web", { storages: ["a", "b"], keep: 3, mode: "" }, 1000]]);
  t.is(error, "b: it is full");
  t.is(output, "warning: odd\na: n\na: removed old\nb: it is full\nb: removed old\n");
});

// Reboots with a harmless command.

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
