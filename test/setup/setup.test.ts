/** `svc setup`: missing files are written, existing ones stay. */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { exitCodes } from "../../src/cli/output/exit-codes.ts";
import { completionScripts } from "../../src/cli/completion/completion-scripts.ts";
import { setUp, type SetupOptions } from "../../src/setup/setup.ts";
import { runSvc } from "../cli/support/run-svc.ts";

const unitsDir = fileURLToPath(new URL("../../packaging", import.meta.url));

async function emptyRoot(t: ExecutionContext, isUnderSystemd: boolean): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), "svc-setup-"));
  t.teardown(() => rm(root, { recursive: true }));
  if (isUnderSystemd) await mkdir(join(root, "run/systemd/system"), { recursive: true });
  return root;
}

const optionsOf = (root: string, uid: number): SetupOptions => ({
  environment: { uid, home: uid === 0 ? "/root" : "/home/me", env: { PATH: "/usr/bin" } },
  command: ["/opt/my node/bin/node", "/opt/svc/100%/svc.cjs"],
  unitsDir,
  completions: completionScripts,
  root,
});

test("root's setup has the configuration, completions and the shipped units", async (t) => {
  const root = await emptyRoot(t, true);
  const { written, kept, next } = await setUp(optionsOf(root, 0));
  t.deepEqual(kept, []);
  t.deepEqual(written, [
    "/etc/svc/svc.toml",
    "/usr/local/share/bash-completion/completions/svc",
    "/usr/local/share/zsh/site-functions/_svc",
    "/etc/fish/completions/svc.fish",
    "/etc/systemd/system/svc.service",
    "/etc/systemd/system/svc.socket",
    "/etc/systemd/system/svc-tcp.socket",
  ]);
  t.deepEqual(next, ["systemctl enable --now svc"]);
  const service = await readFile(join(root, "etc/systemd/system/svc.service"), "utf8");
  t.regex(service, /^ExecStart="\/opt\/my node\/bin\/node" \/opt\/svc\/100%%\/svc.cjs daemon$/m);
  const tcp = await readFile(join(root, "etc/systemd/system/svc-tcp.socket"), "utf8");
  t.deepEqual(tcp.match(/^ListenStream=.*$/gm)?.slice(), [
    "ListenStream=127.0.0.1:8420",
    "ListenStream=[::1]:8420",
  ]);
  t.is((await stat(join(root, "etc/svc/svc.toml"))).mode & 0o022, 0);
  t.regex(await readFile(join(root, "etc/svc/svc.toml"), "utf8"), /^#listen = "127.0.0.1:8420"$/m);
});

test("a user's setup is in their own directories, with a socket only for them", async (t) => {
  const root = await emptyRoot(t, true);
  const { written, next } = await setUp(optionsOf(root, 1000));
  t.deepEqual(written, [
    "/home/me/.config/svc/svc.toml",
    "/home/me/.local/share/bash-completion/completions/svc",
    "/home/me/.config/fish/completions/svc.fish",
    "/home/me/.config/systemd/user/svc.service",
    "/home/me/.config/systemd/user/svc.socket",
    "/home/me/.config/systemd/user/svc-tcp.socket",
  ]);
  t.deepEqual(next, ["loginctl enable-linger", "systemctl --user enable --now svc"]);
  const socket = await readFile(join(root, "home/me/.config/systemd/user/svc.socket"), "utf8");
  t.regex(socket, /^SocketMode=0600$/m);
});

test("a user whose daemon already survives logout is not told to enable that", async (t) => {
  const root = await emptyRoot(t, true);
  const linger = join(root, "var/lib/systemd/linger");
  await mkdir(linger, { recursive: true });
  await writeFile(join(linger, userInfo().username), "");
  const { next } = await setUp(optionsOf(root, 1000));
  t.deepEqual(next, ["systemctl --user enable --now svc"]);
});

test("a unit's command keeps its exact arguments, whatever they contain", async (t) => {
  const root = await emptyRoot(t, true);
  await setUp({ ...optionsOf(root, 0), command: ["/opt/$HOME/node", '/opt/"a" \\b/svc.cjs'] });
  const service = await readFile(join(root, "etc/systemd/system/svc.service"), "utf8");
  const start = /^ExecStart=.*$/m.exec(service)?.[0];
  t.is(start, 'ExecStart=/opt/$$HOME/node "/opt/\\"a\\" \\\\b/svc.cjs" daemon');
});

test("existing files stay, and files of a system package are not written again", async (t) => {
  const root = await emptyRoot(t, true);
  await setUp(optionsOf(root, 0));
  const file = join(root, "etc/svc/svc.toml");
  await writeFile(file, "# mine\n");
  const again = await setUp(optionsOf(root, 0));
  t.deepEqual(again.written, []);
  t.is(again.kept.length, 7);
  t.is(await readFile(file, "utf8"), "# mine\n");

  const other = await emptyRoot(t, true);
  const units = join(other, "usr/lib/systemd/system");
  await mkdir(units, { recursive: true });
  const names = ["svc.service", "svc.socket", "svc-tcp.socket"];
  for (const name of names) await writeFile(join(units, name), "");
  const { written, kept } = await setUp(optionsOf(other, 0));
  t.false(written.some((path) => path.startsWith("/etc/systemd")));
  t.deepEqual(
    kept,
    names.map((name) => `/usr/lib/systemd/system/${name}`),
  );
});

test("systemd holds the configured TCP address", async (t) => {
  const root = await emptyRoot(t, true);
  await mkdir(join(root, "etc/svc"), { recursive: true });
  await writeFile(join(root, "etc/svc/svc.toml"), '[api]\nlisten = "localhost:9000"\n');
  await setUp(optionsOf(root, 0));
  const unit = await readFile(join(root, "etc/systemd/system/svc-tcp.socket"), "utf8");
  const held = unit.split("\n").filter((line) => line.startsWith("ListenStream="));
  t.deepEqual(held, ["ListenStream=127.0.0.1:9000", "ListenStream=[::1]:9000"]);
});

test("a setup over an earlier one adds the port's unit and says how to start it", async (t) => {
  const root = await emptyRoot(t, true);
  await setUp(optionsOf(root, 0));
  await rm(join(root, "etc/systemd/system/svc-tcp.socket"));
  const { written, next } = await setUp(optionsOf(root, 0));
  t.deepEqual(written, ["/etc/systemd/system/svc-tcp.socket"]);
  t.deepEqual(next.slice(1), [
    "systemctl stop svc",
    "systemctl enable --now svc-tcp.socket",
    "systemctl start svc",
  ]);
});

test("a user's setup names the system daemon, whose port their own cannot have", async (t) => {
  const home = await emptyRoot(t, false);
  const system = join(home, "system.sock");
  const setUpHome = async (): Promise<string> => {
    const program = {
      command: ["svc"],
      unitsDir,
      docsDir: home,
      settingsThread: () => Promise.resolve(new URL("file:///nowhere")),
    };
    const sockets = { checkoutDir: undefined, system, user: join(home, "user.sock") };
    const { stderr, exitCode } = await runSvc(["setup"], { host: { home, program, sockets } });
    t.is(exitCode, 0);
    return stderr;
  };
  t.notRegex(await setUpHome(), /system's daemon/);
  await writeFile(system, "");
  const said = await setUpHome();
  t.true(said.includes(`You can use the system's daemon (${system}).`), said);
  t.regex(said, /\[api\] listen in your configuration\.\nNext: /);
});

test("without systemd there are no units", async (t) => {
  const root = await emptyRoot(t, false);
  const { written, next } = await setUp(optionsOf(root, 0));
  t.false(written.some((path) => path.includes("systemd")));
  t.deepEqual(next, ["svc daemon"]);
});

test("systemd takes the units of both modes", async (t) => {
  for (const uid of [0, 1000]) {
    const root = await emptyRoot(t, true);
    const { written } = await setUp({ ...optionsOf(root, uid), command: ["/bin/true"] });
    const units = written.filter((path) => path.includes("/systemd/")).map((path) => join(root, path));
    const { stderr } = await promisify(execFile)("systemd-analyze", ["verify", "--man=no", ...units]).catch(
      (error: unknown) => error as { stderr: string },
    );
    t.deepEqual(
      stderr.split("\n").filter((line) => line.includes("svc.")),
      [],
    );
  }
});

test("a unit has the daemon's own cgroup if systemd supports it, and fails permanently on an invalid configuration", async (t) => {
  for (const uid of [0, 1000]) {
    for (const systemdVersion of [252, 254]) {
      const root = await emptyRoot(t, true);
      const { written } = await setUp({ ...optionsOf(root, uid), systemdVersion });
      const service = written.find((path) => path.endsWith("/svc.service")) ?? "";
      const unit = await readFile(join(root, service), "utf8");
      t.is(/^DelegateSubgroup=daemon$/m.test(unit), systemdVersion === 254, `${uid} ${systemdVersion}`);
      t.is(/^ExecStopPost=-/m.test(unit), systemdVersion === 252, `${uid} ${systemdVersion}`);
      t.is(/before 254/.test(unit), systemdVersion === 252, `${uid} ${systemdVersion}`);
      t.regex(unit, new RegExp(`^RestartPreventExitStatus=${exitCodes.misconfigured}$`, "m"));
    }
  }
});
