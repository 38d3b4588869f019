/** Abbreviated app IDs are accepted at a terminal, but not by commands that destroy data; mistyped IDs get a suggestion. */
import { PassThrough } from "node:stream";
import test from "ava";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc, type SvcRun } from "./support/run-svc.ts";

const apps = [
  ...["hello", "web", "web-2", "wiki"].map((id) => appOf({ id })),
  ...["help", "other"].map((id) => appOf({ id, owner: 1001 })),
];

async function svc(
  line: string,
  terminal: boolean,
  host: { readonly uid?: number; readonly env?: Record<string, string> } = {},
): Promise<SvcRun> {
  await using daemon = await startFakeDaemon(apps);
  const args = ["--socket", daemon.socketPath, ...line.split(" ")];
  const stdin = Object.assign(new PassThrough(), { isTTY: terminal });
  stdin.end("y\n");
  const options = { terminal, host: { ...host, stdin } };
  return await runSvc(args, options);
}

for (const line of ["app info he", "start he", "app stop he", "app logs wi"]) {
  test(`svc ${line} finds the only app with this prefix at a terminal`, async (t) => {
    const run = await svc(line, true);
    t.is(run.exitCode, 0, run.stderr);
    t.regex(run.stdout, /hello|wiki/);
  });

  test(`svc ${line} finds no app in a script`, async (t) => {
    const run = await svc(line, false);
    t.is(run.exitCode, 3);
    t.regex(run.stderr, /no app "(he|wi)"/);
  });
}

test("a full ID is not treated as the prefix of another", async (t) => {
  t.regex((await svc("app info web", true)).stdout, /ID:\S* +web\n/);
});

test("a prefix of several apps fails with their names from all pages", async (t) => {
  const run = await svc("app info w", true);
  t.is(run.exitCode, 3);
  t.regex(run.stderr, /no app "w"; several IDs have this prefix: web, web-2, wiki/);
});

test("a prefix of another user's app finds nothing, except for root on behalf of that user", async (t) => {
  const run = await svc("app info ot", true);
  t.is(run.exitCode, 3);
  t.regex(run.stderr, /no app "ot"/);
  const sudo = await svc("app info ot", true, { uid: 0, env: { SUDO_UID: "1001" } });
  t.regex(sudo.stdout, /ID:\S* +other\n/);
});

for (const line of ["start hlelo", "logs helo -f", "rm helo --yes", "info helo wiki"]) {
  test(`svc ${line} suggests the ID that was probably meant`, async (t) => {
    const run = await svc(line, false);
    t.is(run.exitCode, 3);
    t.regex(run.stderr, /^svc: no app "h\w+"; did you mean "hello"\?\n$/m);
  });
}

test("a mistyped ID never suggests another user's app", async (t) => {
  const line = "start othr";
  t.regex((await svc(line, false)).stderr, /no app "othr"; list installed apps with: svc ls/);
  const sudo = await svc(line, false, { uid: 0, env: { SUDO_UID: "1001" } });
  t.regex(sudo.stderr, /no app "othr"; did you mean "other"\?/);
});

test("removing an app requires its full ID", async (t) => {
  const run = await svc("app remove he --yes", true);
  t.is(run.exitCode, 3);
  t.regex(run.stderr, /no app "he"/);
});
