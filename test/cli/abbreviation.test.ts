/** An id that is typed in part means the one app that begins so: at a terminal, and for nothing that destroys. */
import { PassThrough } from "node:stream";
import test from "ava";
import { appOf, startFakeDaemon } from "./support/fake-daemon.ts";
import { runFirst, runSvc, type SvcRun } from "./support/run-svc.ts";

const apps = ["hello", "web", "web-2", "wiki"].map((id) => appOf({ id }));

async function svc(line: string, terminal: boolean): Promise<SvcRun> {
  await using daemon = await startFakeDaemon(apps);
  const args = ["--socket", daemon.socketPath, ...line.split(" ")];
  const stdin = Object.assign(new PassThrough(), { isTTY: terminal });
  stdin.end("y\n");
  const options = { terminal, host: { stdin } };
  return (await runFirst(args, options)) ?? (await runSvc(args, options));
}

for (const line of ["app info he", "start he", "app stop he", "app logs wi"]) {
  test(`svc ${line} means the one app that begins so, at a terminal`, async (t) => {
    const run = await svc(line, true);
    t.is(run.exitCode, 0, run.stderr);
    t.regex(run.stdout, /hello|wiki/);
  });

  test(`svc ${line} means no app in a script`, async (t) => {
    const run = await svc(line, false);
    t.is(run.exitCode, 3);
    t.regex(run.stderr, /no app "(he|wi)"/);
  });
}

test("an id that is whole is no beginning of another", async (t) => {
  t.regex((await svc("app info web", true)).stdout, /Id:\S* +web\n/);
});

test("a beginning of several apps is refused with their names, over all pages", async (t) => {
  const run = await svc("app info w", true);
  t.is(run.exitCode, 3);
  t.regex(run.stderr, /no app "w"; several begin so: web, web-2, wiki/);
});

test("what removes an app takes its whole id", async (t) => {
  const run = await svc("app remove he --yes", true);
  t.is(run.exitCode, 3);
  t.regex(run.stderr, /no app "he"/);
});
