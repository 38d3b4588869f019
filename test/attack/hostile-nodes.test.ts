/** A hostile node chooses neither which app a command is about nor, without consent, as which user it runs here. */
import { chown, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { runSvc, type SvcRun } from "../cli/support/run-svc.ts";
import { openGateway } from "../server/http/support/gateway.ts";
import { isRoot, needsRoot, startDaemon } from "../support/daemon.ts";
import { writeFiles } from "../support/packages.ts";

const rootTest = isRoot ? test : test.skip;
const victim = 65_534;

/** Root's nodes by name, each with its socket. @returns a function that runs `svc` as root */
async function withNodes(home: string, sockets: Readonly<Record<string, string>>) {
  const config = join(home, ".config/svc");
  await mkdir(config, { recursive: true, mode: 0o700 });
  const named = Object.entries(sockets).map(([name, path]) => [name, { address: `unix://${path}` }]);
  const nodes = JSON.stringify({ nodes: Object.fromEntries(named) as unknown });
  await writeFile(join(config, "nodes.json"), nodes, { mode: 0o600 });
  return (...args: string[]): Promise<SvcRun> =>
    runSvc(args, { host: { home, uid: process.getuid?.() ?? 0 } });
}

test("a move rejects an app that the node returned instead of the named one", async (t) => {
  const app = { id: "other", owner: process.getuid?.() ?? 0, packageId: "other" };
  await using hostile = await openGateway({
    handlers: { app: { getApp: () => app, getAppDisk: () => ({ totalBytes: 1n }) } },
  });
  await using here = await startDaemon();
  const svc = await withNodes(here.dir, { hostile: hostile.socketPath, here: here.socketPath });
  const { exitCode, stderr } = await svc(
    "-N",
    "hostile",
    "app",
    "move",
    "hello",
    "--to",
    "here",
    "--dry-run",
  );
  t.regex(stderr, /returned app "other" instead of "hello"/);
  t.not(exitCode, 0);
});

for (const command of ["copy", "move"]) {
  rootTest(
    `a ${command} from another node asks root before a regular user gets the app${needsRoot}`,
    async (t) => {
      await using hostile = await startDaemon();
      await using here = await startDaemon();
      const svc = await withNodes(here.dir, { hostile: hostile.socketPath, here: here.socketPath });
      const dir = join(hostile.dir, "package");
      await writeFiles(dir, {
        "svc.yaml": 'id: gift\nname: gift\nversion: "1"\nprocess: { exec: [/bin/sleep, inf] }\n',
      });
      await chown(dir, victim, victim);
      await using user = await hostile.as(victim);
      await user.client(AppService).installApp({ spec: dir });

      const line = ["-N", "hostile", "app", command, "gift", "--to", "here"];
      const refused = await svc(...line);
      t.not(refused.exitCode, 0);
      t.regex(
        refused.stderr,
        /gift requires .*run as uid 65534, a user that hostile chose.* pass --accept-permissions/,
      );
      t.deepEqual((await here.client(AppService).listApps({})).apps, []);

      const done = await svc(...line, "--accept-permissions");
      t.is(done.exitCode, 0, done.stderr);
      const { apps } = await here.client(AppService).listApps({});
      t.like(apps, { length: 1, 0: { id: "gift", owner: victim } });
    },
  );
}
