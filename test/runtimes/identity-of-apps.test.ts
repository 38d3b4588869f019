import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { Fixture, isRoot } from "./support/fixture.ts";

const rootTest = isRoot ? test : test.skip;
const run = promisify(execFile);

for (const uid of [65534, 5]) {
  rootTest(`an app of uid ${uid} has its owner's groups and no privileges (root only)`, async (t) => {
    await using fixture = await Fixture.create();
    const app = await fixture.shell(
      "id -u; id -g; id -G; grep -E 'NoNewPrivs|Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status; echo done; exec sleep 1000",
      {},
      uid,
    );
    await fixture.runtime.start(app);
    const [userId, groupId, groups, ...status] = await fixture.outputUntil(app, "done");
    const { stdout } = await run("id", ["-G", String(uid)]);
    t.is(userId, String(uid));
    t.is(groups, stdout.trim());
    t.is(groupId, stdout.trim().split(" ")[0]);
    t.is(status.length, 6);
    for (const line of status) t.regex(line, /^(NoNewPrivs:\t1|Cap\w+:\t0+)$/);
    for (const name of ["", "state.json", "supervisor.sock", "logs", "spec.json"]) {
      const { uid: owner, mode } = await stat(join(app.runDir, name));
      t.is(owner, uid, name);
      t.is(mode & 0o077, 0, name);
    }
  });
}

test("an app gets a clean environment, descriptors 0 to 2, its directory, the usual umask and its own session", async (t) => {
  process.env["SVC_TEST_CANARY"] = "leaked";
  await using fixture = await Fixture.create();
  const app = await fixture.shell(
    "env; echo; ls /proc/self/fd; pwd; umask; ps -o sid= -p $$ | tr -d ' '; echo $$; echo done; exec sleep 1000",
    {
      env: { MINE: "yes" },
    },
  );
  await fixture.runtime.start(app);
  const output = await fixture.outputUntil(app, "done");
  delete process.env["SVC_TEST_CANARY"];
  const environment = output.slice(0, output.indexOf(""));
  const names = environment.map((line) => line.split("=")[0] ?? "");
  t.false(names.includes("SVC_TEST_CANARY"));
  t.deepEqual(names.filter((name) => !["PWD", "OLDPWD", "SHLVL", "_"].includes(name)).sort(), [
    "HOME",
    "LANG",
    "LOGNAME",
    "MINE",
    "PATH",
    "SHELL",
    "SVC_APP_DIR",
    "SVC_APP_ID",
    "SVC_DATA_DIR",
    "SVC_RUN_ID",
    "TMPDIR",
    "USER",
  ]);
  // `ls` has one more open: the directory that it lists.
  const [zero, one, two, three, directory, umask, session, pid] = output.slice(output.indexOf("") + 1);
  t.deepEqual([zero, one, two, three], ["0", "1", "2", "3"]);
  t.is(directory, join(app.directory, "repo"));
  t.is(umask, "0022");
  t.is(session, pid);
});
