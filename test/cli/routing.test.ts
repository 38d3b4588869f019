import test from "ava";
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { PassThrough } from "node:stream";
import { chooseRoute, sudoHeaders } from "../../src/cli/routing.ts";
import { daemonCommand } from "../../src/cli/no-daemon.ts";
import { InProcessClient } from "../../src/cli/in-process-client.ts";
import { appOf, createFakePipeline, localUser, startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc } from "./support/run-svc.ts";

interface RoutingCase {
  title: string;
  present: ("checkout" | "pointer" | "stopped" | "system" | "user")[];
  socketOption?: string;
  uid?: number;
  /** The place it leads to. */
  to: "checkout" | "elsewhere" | "system" | "user" | "option" | "in-process";
  mayFallBack?: boolean;
}

const cases: RoutingCase[] = [
  { title: "nothing is there", present: [], to: "in-process" },
  { title: "the user's own", present: ["user"], to: "user" },
  { title: "the system's before the user's", present: ["system", "user"], to: "system" },
  { title: "the checkout's before the system's", present: ["checkout", "system", "user"], to: "checkout" },
  { title: "where a long checkout says", present: ["pointer", "system"], to: "elsewhere" },
  { title: "the checkout's daemon is stopped", present: ["stopped", "system"], to: "checkout" },
  { title: "it is stopped, and this is root", present: ["stopped"], uid: 0, to: "checkout" },
  { title: "--socket before all", present: ["checkout", "system"], socketOption: "/o", to: "option" },
  { title: "--socket that is not there", present: [], socketOption: "/o", uid: 0, to: "option" },
  { title: "root may fall back", present: ["system"], uid: 0, to: "system", mayFallBack: true },
];

for (const { title, present, socketOption, uid = 1000, to, mayFallBack = false } of cases) {
  test(`route: ${title}`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-route-"));
    t.teardown(() => rm(directory, { recursive: true }));
    const places = {
      checkout: join(directory, ".svc/svc.sock"),
      elsewhere: join(directory, "elsewhere"),
      system: join(directory, "system"),
      user: join(directory, "user"),
      option: "/o",
    };
    await mkdir(join(directory, ".svc"));
    for (const place of present) {
      if (place === "stopped") await writeFile(join(directory, ".svc/svc.toml"), "");
      else if (place !== "pointer") await writeFile(places[place], "");
      else {
        await writeFile(join(directory, ".svc/socket"), `${places.elsewhere}\n`);
        await writeFile(places.elsewhere, "");
      }
    }
    const route = chooseRoute({
      socketOption,
      uid,
      sockets: { checkoutDir: join(directory, ".svc"), system: places.system, user: places.user },
    });
    t.deepEqual(
      route,
      to === "in-process" ? { kind: "in-process" } : { kind: "socket", path: places[to], mayFallBack },
    );
  });
}

const rootTest = process.getuid?.() === 0 ? test : test.skip;

for (const [title, uid, mode, owner, isTaken] of [
  ["root takes the socket of its own", 0, 0o700, 0, true],
  ["a user takes everybody's", 1000, 0o700, 0, false],
  ["root takes no socket that others may have put there", 0, 0o755, 0, false],
  ["root takes no socket of somebody else's", 0, 0o700, 65_534, false],
] as const) {
  rootTest(`route: ${title} (skipped unless root)`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-route-"));
    t.teardown(() => rm(directory, { recursive: true }));
    const system = join(directory, "svc.sock");
    const own = join(directory, "root/svc.sock");
    await mkdir(dirname(own));
    for (const path of [system, own]) await writeFile(path, "");
    await chmod(dirname(own), mode);
    await chown(dirname(own), owner, owner);
    const sockets = { checkoutDir: undefined, system, user: system };
    const route = chooseRoute({ socketOption: undefined, uid, sockets });
    t.deepEqual(route, { kind: "socket", path: isTaken ? own : system, mayFallBack: uid === 0 });
  });
}

for (const [title, uid, env, headers] of [
  [
    "root behind sudo",
    0,
    { SUDO_UID: "1000", SUDO_USER: "ada" },
    { "x-svc-sudo-uid": "1000", "x-svc-sudo-user": "ada" },
  ],
  ["a name that is no header", 0, { SUDO_UID: "1000", SUDO_USER: "a\r\nb" }, { "x-svc-sudo-uid": "1000" }],
  ["a user with the variables set", 1000, { SUDO_UID: "0", SUDO_USER: "root" }, {}],
  ["root itself", 0, {}, {}],
  ["no uid: -1", 0, { SUDO_UID: "4294967295" }, {}],
  ["no uid: hexadecimal", 0, { SUDO_UID: "0x0" }, {}],
  ["no uid: a space", 0, { SUDO_UID: " 0" }, {}],
] as const) {
  test(`sudo: ${title}`, (t) => t.deepEqual(sudoHeaders({ uid, env }), headers));
}

test("sudo's user reaches the daemon", async (t) => {
  await using daemon = await startFakeDaemon();
  const { exitCode } = await runSvc(["ls", "--socket", daemon.socketPath], {
    host: { uid: 0, env: { SUDO_UID: "1000", SUDO_USER: "ada" } },
  });
  t.is(exitCode, 0);
  t.like(daemon.requests[0]?.headers, { "x-svc-sudo-uid": "1000", "x-svc-sudo-user": "ada" });
});

function inProcess() {
  let opened = 0;
  let closed = 0;
  return {
    counts: () => [opened, closed],
    openInProcess: () => {
      opened += 1;
      const pipeline = createFakePipeline([appOf({ id: "inside", state: "RUNNING" })]);
      const dispose = () => {
        closed += 1;
        return Promise.resolve();
      };
      return Promise.resolve(new InProcessClient({ pipeline, user: localUser, dispose }));
    },
  };
}

test("without a socket a command works in this process, and closes it", async (t) => {
  const { counts, openInProcess } = inProcess();
  const dependencies = { openInProcess };
  const list = await runSvc(["ls", "--json"], { dependencies });
  t.like(JSON.parse(list.stdout), { apps: [{ id: "inside", state: "RUNNING", owner: 1000 }] });
  const logs = await runSvc(["upgrade", "inside"], { dependencies });
  t.regex(logs.stderr, /app "inside" is running; stop it before upgrading it: svc app stop inside/);
  t.is(logs.exitCode, 5);
  t.deepEqual(counts(), [2, 2]);
});

test("without a daemon, status says so and how to start one", async (t) => {
  const { openInProcess } = inProcess();
  const warning = /^warning: no daemon runs: svc works in this process; start one: svc daemon\n$/;
  const text = await runSvc(["status"], { dependencies: { openInProcess } });
  t.regex(text.stdout, /^Daemon: none; svc 1\.2\.3 \(user\) in this process\nApps: .*1 installed/);
  t.regex(text.stderr, warning);
  const json = await runSvc(["status", "--json"], { dependencies: { openInProcess } });
  t.like(JSON.parse(json.stdout), { version: "1.2.3", mode: "user", hostname: "test" });
  t.regex(json.stderr, warning);
});

test("how a daemon is started goes by where svc is", async (t) => {
  const root = await mkdtemp(join(tmpdir(), "svc-root-"));
  t.teardown(() => rm(root, { recursive: true }));
  const of = (uid: number, checkoutDir?: string): string =>
    daemonCommand({
      ...{ uid, root, env: {}, home: "/home/ada" },
      sockets: { checkoutDir, system: "", user: "" },
    });
  t.deepEqual([of(0), of(1000), of(1000, "/srv/svc/.svc")], ["svc daemon", "svc daemon", "npm start"]);
  await mkdir(join(root, "run/systemd/system"), { recursive: true });
  t.is(of(0), "svc setup && systemctl enable --now svc");
  t.is(of(1000), "svc setup && systemctl --user enable --now svc");
  for (const dir of ["usr/lib/systemd/system", "home/ada/.config/systemd/user"]) {
    await mkdir(join(root, dir), { recursive: true });
    await writeFile(join(root, dir, "svc.service"), "");
  }
  t.is(of(0), "systemctl enable --now svc");
  t.is(of(1000), "systemctl --user enable --now svc");
  const { openInProcess } = inProcess();
  const host = { uid: 0, root };
  const { stderr } = await runSvc(["status"], { host, dependencies: { openInProcess } });
  t.regex(stderr, /; start one: systemctl enable --now svc\n$/);
  const gone = { checkoutDir: undefined, system: join(root, "svc.sock"), user: join(root, "svc.sock") };
  await writeFile(gone.system, "");
  const lost = await runSvc(["ls"], { host: { root, sockets: gone } });
  t.regex(lost.stderr, /; start a daemon: svc setup && systemctl --user enable --now svc\n$/);
  const named = await runSvc(["ls", "--socket", gone.system], { host: { root } });
  t.regex(named.stderr, /; start a daemon: svc daemon\n$/, "of another place nothing is known");
});

const jobsWait = /^warning: jobs fire only while a daemon runs, and none does; start one: svc daemon\n$/;
for (const [args, warning] of [
  [
    ["list"],
    /^warning: jobs fire only while a daemon runs.*\nThere are no jobs\..* daily@03:00 backup --app ID\n$/,
  ],
  [["list", "--json"], jobsWait],
  [["add", "*/5 * * * *", "shell", "--command", "echo hi"], jobsWait],
  [["show", "nope", "--json"], /^\{"error":.*\n$/],
  [["next", "0 3 * * *"], /^The trigger is read in .*\n$/],
] as const) {
  test(`without a daemon, svc schedule ${args.join(" ")} warns where jobs would wait for one`, async (t) => {
    const { openInProcess } = inProcess();
    const { stderr } = await runSvc(["schedule", ...args], { dependencies: { openInProcess } });
    t.regex(stderr, warning);
  });
}

for (const kind of ["stale", "silent"] as const) {
  for (const args of [["ls"], ["app", "start", "inside"], ["install", "inside"]]) {
    test(`${kind} socket, svc ${args.join(" ")}: an error for a user, a warned fallback for root`, async (t) => {
      const directory = await mkdtemp(join(tmpdir(), "svc-route-"));
      t.teardown(() => rm(directory, { recursive: true }));
      const system = join(directory, "svc.sock");
      if (kind === "stale") await writeFile(system, "");
      else {
        const server = createServer((socket) => void socket.on("error", () => undefined).resume());
        await new Promise<void>((resolve) => server.listen(system, resolve));
        t.teardown(() => void server.close());
      }
      const { counts, openInProcess } = inProcess();
      const sockets = { checkoutDir: undefined, system, user: "/nonexistent/user" };
      const asRoot = await runSvc([...args, "--timeout", "20"], {
        host: { uid: 0, sockets },
        dependencies: { openInProcess },
      });
      t.is(asRoot.exitCode, 0, asRoot.stderr);
      t.regex(asRoot.stderr, /warning: no daemon answers on .*svc\.sock: working in this process/);
      t.regex(asRoot.stdout, /inside/);
      t.deepEqual(counts(), [1, 1]);

      // 3 s are promised; where a busy machine makes its timers late, this one is late, too.
      let isLate = false;
      const late = setTimeout(() => (isLate = true), 5_000);
      const asUser = await runSvc(args, { host: { sockets }, dependencies: { openInProcess } });
      clearTimeout(late);
      t.is(asUser.exitCode, 6);
      t.false(isLate);
      t.regex(
        asUser.stderr,
        kind === "stale" ? /no daemon answers on/ : /takes connections and answers nothing/,
      );
      t.deepEqual(counts(), [1, 1]);
    });
  }
}

for (const [title, args, hasOwn, uid, exitCode, stderr] of [
  [
    "list, nothing of one's own",
    ["ls"],
    false,
    1000,
    6,
    /^svc: the system's daemon does not run .*--private\n$/,
  ],
  [
    "app, nothing of one's own",
    ["app", "info", "inside"],
    false,
    1000,
    6,
    /^svc: the system's daemon does not run/,
  ],
  [
    "list of one's own",
    ["ls"],
    true,
    1000,
    0,
    /^warning: the system's daemon does not run .*these are your own\n/,
  ],
  ["install", ["install", "inside"], true, 1000, 6, /^svc: the system's daemon does not run .*--private\n$/],
  ["install --private", ["install", "inside", "--private"], false, 1000, 0, /^(?!.*daemon does not run)/],
  ["list of root's", ["ls"], false, 0, 0, /^$/],
] as const) {
  test(`the system's daemon is down: ${title}`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-route-"));
    t.teardown(() => rm(directory, { recursive: true }));
    const stores = { system: join(directory, "system"), user: join(directory, "user") };
    for (const path of [stores.system, stores.user]) await mkdir(path);
    if (hasOwn) await writeFile(join(stores.user, "svc.db"), "");
    const { counts, openInProcess } = inProcess();
    const run = await runSvc(args, { host: { uid, stores }, dependencies: { openInProcess } });
    t.is(run.exitCode, exitCode, run.stderr);
    t.regex(run.stderr, stderr);
    t.deepEqual(counts(), exitCode === 0 ? [1, 1] : [0, 0]);
  });
}

for (const [answer, exitCode] of [
  ["y", 0],
  ["", 6],
] as const) {
  test(`where the system's daemon is down a terminal is asked: "${answer}"`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-route-"));
    t.teardown(() => rm(directory, { recursive: true }));
    const stores = { system: join(directory, "system"), user: join(directory, "user") };
    await mkdir(stores.system);
    const { counts, openInProcess } = inProcess();
    const stdin = Object.assign(new PassThrough(), { isTTY: true });
    stdin.write(`${answer}\n`);
    const run = await runSvc(["install", "inside"], {
      ...{ terminal: true, host: { uid: 1000, stores, stdin }, dependencies: { openInProcess } },
    });
    t.is(run.exitCode, exitCode, run.stderr);
    t.regex(run.stderr, /the system's daemon does not run [^]*Install for yourself alone\? \[y\/N\]/);
    t.deepEqual(counts(), exitCode === 0 ? [1, 1] : [0, 0]);
  });
}
