import test from "ava";
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { chooseRoute, sudoHeaders } from "../../src/cli/client/routing.ts";
import { daemonCommand } from "../../src/cli/no-daemon.ts";
import { InProcessClient } from "../../src/cli/client/in-process-client.ts";
import { appOf, createFakePipeline, localUser, startFakeDaemon } from "./support/fake-daemon.ts";
import { runSvc } from "./support/run-svc.ts";

interface RoutingCase {
  title: string;
  present: ("checkout" | "pointer" | "stopped" | "system" | "user")[];
  socketOption?: string;
  uid?: number;
  /** The expected socket. */
  to: "checkout" | "elsewhere" | "system" | "user" | "option" | "in-process";
  mayFallBack?: boolean;
}

const cases: RoutingCase[] = [
  { title: "no socket exists", present: [], to: "in-process" },
  { title: "the user's socket", present: ["user"], to: "user" },
  { title: "the system's before the user's", present: ["system", "user"], to: "system" },
  { title: "the checkout's before the system's", present: ["checkout", "system", "user"], to: "checkout" },
  {
    title: "the socket that a long checkout path points to",
    present: ["pointer", "system"],
    to: "elsewhere",
  },
  { title: "the checkout's daemon is stopped", present: ["stopped", "system"], to: "checkout" },
  { title: "the checkout's daemon is stopped, for root", present: ["stopped"], uid: 0, to: "checkout" },
  { title: "--socket before all", present: ["checkout", "system"], socketOption: "/o", to: "option" },
  { title: "--socket that does not exist", present: [], socketOption: "/o", uid: 0, to: "option" },
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
  ["root uses the separate socket", 0, 0o700, 0, true],
  ["a user uses the shared socket", 1000, 0o700, 0, false],
  ["root uses no socket that others may have created", 0, 0o755, 0, false],
  ["root uses no socket of another user", 0, 0o700, 65_534, false],
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
  [
    "a name that cannot be a header",
    0,
    { SUDO_UID: "1000", SUDO_USER: "a\r\nb" },
    { "x-svc-sudo-uid": "1000" },
  ],
  ["a user with the variables set", 1000, { SUDO_UID: "0", SUDO_USER: "root" }, {}],
  ["root itself", 0, {}, {}],
  ["not a uid: -1", 0, { SUDO_UID: "4294967295" }, {}],
  ["not a uid: hexadecimal", 0, { SUDO_UID: "0x0" }, {}],
  ["not a uid: a space", 0, { SUDO_UID: " 0" }, {}],
] as const) {
  test(`sudo: ${title}`, (t) => t.deepEqual(sudoHeaders({ uid, env }), headers));
}

test("the user behind sudo is sent to the daemon", async (t) => {
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

test("without a socket a command opens the service layer in this process, and closes it", async (t) => {
  const { counts, openInProcess } = inProcess();
  const dependencies = { openInProcess };
  const list = await runSvc(["ls", "--json"], { dependencies });
  t.like(JSON.parse(list.stdout), { apps: [{ id: "inside", state: "RUNNING", owner: 1000 }] });
  const upgrade = await runSvc(["upgrade", "inside", "--no-restart"], { dependencies });
  t.regex(upgrade.stderr, /app "inside" is running; stop it before upgrading it: svc stop inside/);
  t.is(upgrade.exitCode, 5);
  t.deepEqual(counts(), [2, 2]);
});

test("without a daemon, status reports it and how to start one", async (t) => {
  const { openInProcess } = inProcess();
  const warning =
    /^warning: no daemon is running, so the command runs in this process; start one: svc daemon\n$/;
  const text = await runSvc(["status"], { dependencies: { openInProcess } });
  t.regex(text.stdout, /^Daemon: +none; svc 1\.2\.3 \(user\) in this process\n/);
  t.regex(text.stdout, /^Apps: .*1 installed/m);
  t.regex(text.stderr, warning);
  const json = await runSvc(["status", "--json"], { dependencies: { openInProcess } });
  t.like(JSON.parse(json.stdout), { version: "1.2.3", mode: "user", hostname: "test" });
  t.regex(json.stderr, warning);
});

test("the command that starts a daemon depends on the installation", async (t) => {
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
  t.regex(named.stderr, /; start a daemon: svc daemon\n$/, "nothing is known about a custom socket");
});

const jobsWait =
  /^warning: jobs run only while a daemon runs, and no daemon is running; start one: svc daemon\n$/;
for (const [args, warning] of [
  [["list"], /^warning: jobs run only while a daemon runs.*\nNo jobs yet\..* daily@03:00 backup --app ID\n$/],
  [["list", "--json"], jobsWait],
  [["add", "*/5 * * * *", "shell", "--command", "echo hi"], jobsWait],
  [["show", "nope", "--json"], /^\{"error":.*\n$/],
  [["next", "0 3 * * *"], /^The trigger is read in .*\n$/],
] as const) {
  test(`without a daemon, svc schedule ${args.join(" ")} warns only if jobs would wait for one`, async (t) => {
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
      t.regex(
        asRoot.stderr,
        /warning: no daemon responds on .*svc\.sock; running the command in this process/,
      );
      t.regex(asRoot.stdout, /inside/);
      t.deepEqual(counts(), [1, 1]);

      // The limit is 3 s; if timers of a slow test host are late, the result is late, too.
      let isLate = false;
      const late = setTimeout(() => (isLate = true), 5_000);
      const asUser = await runSvc(args, { host: { sockets }, dependencies: { openInProcess } });
      clearTimeout(late);
      t.is(asUser.exitCode, 6);
      t.false(isLate);
      t.regex(
        asUser.stderr,
        kind === "stale" ? /no daemon responds on/ : /accepts connections but does not respond/,
      );
      t.deepEqual(counts(), [1, 1]);
    });
  }
}

const systemIsDown =
  /^warning: the system daemon is not running \(no socket \S+\), so this uses your private store \S+\/user; to start the system daemon: sudo systemctl start svc\n/;

for (const [title, args, uid, stderr] of [
  ["a regular user lists apps", ["ls"], 1000, systemIsDown],
  ["a regular user installs an app", ["install", "inside"], 1000, systemIsDown],
  [
    "a regular user installs an app with the old --private",
    ["install", "inside", "--private"],
    1000,
    systemIsDown,
  ],
  ["root lists apps", ["ls"], 0, /^$/],
] as const) {
  test(`without a socket beside a system store, ${title} in-process${uid === 0 ? "" : ", with one warning"}`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "svc-route-"));
    t.teardown(() => rm(directory, { recursive: true }));
    const stores = { system: join(directory, "system"), user: join(directory, "user") };
    await mkdir(stores.system);
    const { counts, openInProcess } = inProcess();
    const run = await runSvc(args, { host: { uid, stores }, dependencies: { openInProcess } });
    t.is(run.exitCode, 0, run.stderr);
    t.regex(run.stderr, stderr);
    t.deepEqual(counts(), [1, 1]);
  });
}
