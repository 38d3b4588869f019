/** `svc docker` with a real daemon and a real engine: the commands of the guide. */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { eventually, nextEvent } from "../support/eventually.ts";
import { main } from "../support/svc-main.ts";
import { writeFiles } from "../support/packages.ts";

const engineNow = sharedEngine();
const shared: { daemon?: TestDaemon } = {};
const forever = "echo ready; trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";
const command = ["/bin/sh", "-c", forever];

test.before(async () => {
  if (whyNoDocker !== undefined) return;
  const engine = engineNow();
  const daemon = await startDaemon({ config: engine.config });
  shared.daemon = daemon;
  for (const tag of ["example/site:1", "example/db:1", "example/old:1"]) {
    await engine.images.build(tag, { files: { "etc/tag": tag } });
  }
  const dir = join(daemon.dir, "package");
  const run = `entrypoint: [/bin/sh, -c], command: [${JSON.stringify(forever)}]`;
  const manifest = `id: site\nname: Site\nversion: "1.0.0"\ndocker: { image: "example/site:1", ${run} }\n`;
  await writeFiles(dir, { "svc.yaml": manifest });
  await daemon.client(AppService).installApp({ spec: dir });
  await daemon.client(AppService).startApp({ id: "site" });
  const labels = { "com.docker.compose.project": "shop" };
  await engine.run("shop-db-1", { Image: "example/db:1", Cmd: command, Labels: labels });
  await engine.run("shop-cache-1", { Image: "example/db:1", Cmd: command, Labels: labels });
});
test.after.always(() => shared.daemon?.[Symbol.asyncDispose]());

interface Run {
  code: number | null;
  out: string;
  err: string;
}

/** @param end output that triggers Ctrl-C */
async function svc(args: readonly string[], end?: RegExp): Promise<Run> {
  const { socketPath = "" } = shared.daemon ?? {};
  const child = spawn(process.execPath, [main, "docker", ...args, "--socket", socketPath], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = { out: "", err: "" };
  let isOver = false;
  child.stdout.on("data", (chunk) => {
    output.out += String(chunk);
    if (isOver || end?.test(output.out) !== true) return;
    // Once, because a second signal kills it at once.
    isOver = true;
    child.kill("SIGINT");
  });
  child.stderr.on("data", (chunk) => (output.err += String(chunk)));
  const [code] = (await nextEvent(child, "close")) as [number | null];
  return { code, ...output };
}

interface Step {
  line: string;
  code?: number;
  out?: RegExp;
  err?: RegExp;
}

const tour: readonly Step[] = [
  {
    line: "ps",
    out: /\n[0-9a-f]{12} +shop-db-1 +example\/db:1 +Up [^\n]+ shop\n[0-9a-f]{12} +svc-site-\S+ +example\/site:1 +[^\n]+ site\n$/,
  },
  { line: "stats", out: /^NAME +CPU +MEMORY[^]*\nshop-db-1 +\d+\.\d% / },
  { line: "images", out: /\nexample\/site:1 +[^\n]+ the installed app "site" runs it\n/ },
  { line: "df", out: /\nimages +3 +\d[^]*\ncontainers +3 / },
  { line: "stop svc-site-1", code: 3, err: /no container "svc-site-1"; see them with: svc docker ps --all/ },
  { line: "restart --project shop", out: /^Restarted shop-db-1\nRestarted shop-cache-1\n$/ },
  { line: "stop shop-db-1 shop-cache-1", out: /^Stopped shop-db-1\nStopped shop-cache-1\n$/ },
  { line: "ps -a", out: /shop-cache-1 [^\n]+ Exited \(0\) / },
  { line: "start --project shop", out: /^Started shop-db-1\nStarted shop-cache-1\n$/ },
  { line: "inspect shop-db-1", out: /^Name: +shop-db-1\n[^]*Project: +shop\n[^]*Label: +com\.docker/ },
  { line: "logs shop-db-1 --tail 1", out: /^ready\n$/ },
  {
    line: "prune images --all --dry-run",
    out: /^WOULD BE REMOVED +SIZE\nexample\/old:1 +\d[^\n]+\n$/,
    err: /^Would remove 1 item and free /,
  },
  { line: "prune images --all", code: 2, err: /check with --dry-run, then pass --yes/ },
  { line: "prune images --all --yes", out: /^REMOVED[^]*example\/old:1/, err: /^Removed 1 item and freed / },
  { line: "prune images --all --yes", out: /^$/, err: /^There is nothing to remove\.\n$/ },
  { line: "networks", out: /\nbridge +[0-9a-f]{12} +bridge +local / },
  { line: "volumes", out: /^$/, err: /No volumes found/ },
  { line: "rm shop-db-1 --yes", code: 5, err: /container "shop-db-1" is running; stop it first/ },
];

dockerTest(`the tour of the host's containers${needsDocker}`, async (t) => {
  for (const { line, code = 0, out, err } of tour) {
    const run = await svc(line.split(" "));
    t.is(run.code, code, `${line}: ${run.err}`);
    if (out !== undefined) t.regex(run.out, out, line);
    if (err !== undefined) t.regex(run.err, err, line);
  }
  const { containers } = JSON.parse((await svc(["ps", "--json"])).out) as {
    containers: { name: string; appId?: string }[];
  };
  const own = containers.find(({ appId }) => appId === "site")?.name ?? "";
  const refused = await svc(["stop", own]);
  t.is(refused.code, 5);
  t.regex(refused.err, /belongs to the app "site": use svc start\|stop\|restart\|remove site\n$/);
});

dockerTest(`logs, events and statistics are followed until Ctrl-C${needsDocker}`, async (t) => {
  const events = svc(["events", "--type", "container"], /container start +shop-db-1/);
  const stats = await svc(["stats", "--watch"], /NAME[^]*NAME/);
  t.is(stats.code, 130, stats.err);
  const told = await eventually(async () => {
    // Repeated in case the stream was not connected yet.
    await engineNow().request("POST", "/containers/shop-db-1/restart");
    return await Promise.race([
      events,
      sleep(2_000).then(() => Promise.reject(new Error("no event arrived"))),
    ]);
  }, 30_000);
  t.is(told.code, 130, told.err);
  t.regex(told.out, /container die +shop-db-1/);
  const logs = await svc(["logs", "--follow", "shop-db-1"], /ready/);
  t.is(logs.code, 130, logs.err);
});

dockerTest(`without an engine, the commands say so${needsDocker}`, async (t) => {
  await using daemon = await startDaemon({ config: '[docker]\nsocket = "/nonexistent/docker.sock"' });
  const child = spawn(process.execPath, [main, "docker", "ps", "--socket", daemon.socketPath]);
  let err = "";
  child.stderr.on("data", (chunk) => (err += String(chunk)));
  const [code] = (await nextEvent(child, "close")) as [number | null];
  t.is(code, 6, err);
  t.regex(
    err,
    /^svc: the container engine at \/nonexistent\/docker\.sock cannot be reached: the socket does not exist; install or start Docker/,
  );
});
