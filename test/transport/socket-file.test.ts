/** The file of the unix socket: stale ones go, live ones stay, only the own one is removed. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, lstat, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { tryLock } from "../../src/lib/file-lock.ts";
import { rest } from "./support/clients.ts";
import { collectLog, openDoor } from "./support/door.ts";

async function temporaryDirectory(t: ExecutionContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-socket-"));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

test("the file of a daemon that died is replaced", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const program = `require("net").createServer().listen(${JSON.stringify(path)}, () => console.log("up"))`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  await once(child.stdout, "data");
  child.kill("SIGKILL");
  await once(child, "exit");
  t.true((await lstat(path)).isSocket());

  await using door = await openDoor({ socketPath: path });
  t.is(door.socketPath, path);
  t.is((await rest(door, "/v1/status", { listener: "unix" })).status, 200);
});

test("a live socket of anybody is never taken", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const other = createServer().listen(path);
  await once(other, "listening");
  const { ino } = await lstat(path);
  await using door = await openDoor({ socketPath: path });
  t.is(door.socketPath, "");
  t.true(door.lines.some(({ level }) => level === "warn"));
  t.is((await lstat(path)).ino, ino);
  t.is((await rest(door, "/v1/status")).status, 200);
  other.close();
});

test("a second daemon leaves the first one's socket alone, also when it goes", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await using first = await openDoor({ socketPath: path });
  const second = await openDoor({ socketPath: path });
  t.is(second.socketPath, "");
  await second[Symbol.asyncDispose]();
  t.is((await rest(first, "/v1/status", { listener: "unix" })).status, 200);
});

test("without TCP a socket in use ends the start", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await using _first = await openDoor({ socketPath: path });
  await t.throwsAsync(openDoor({ socketPath: path, tcp: undefined }), {
    message: `another daemon serves ${path}`,
  });
});

test("two daemons that start at once get one socket", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const doors = await Promise.all([1, 2, 3, 4].map(() => openDoor({ socketPath: path })));
  t.is(doors.filter((door) => door.socketPath === path).length, 1);
  for (const door of doors) await door[Symbol.asyncDispose]();
});

test("what another daemon has locked is its own before it listens, and nobody's once it lets go", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const held = await open(`${path}.lock`, "w");
  t.true(tryLock(held.fd));
  const second = await openDoor({ socketPath: path });
  t.is(second.socketPath, "");
  await second[Symbol.asyncDispose]();
  await held.close();
  await using third = await openDoor({ socketPath: path });
  t.is(third.socketPath, path);
});

test("a file that is no socket stays", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await writeFile(path, "precious");
  await using door = await openDoor({ socketPath: path });
  t.is(door.socketPath, "");
  t.is(await readFile(path, "utf8"), "precious");
});

test("a stop removes the own file and no other", async (t) => {
  const directory = await temporaryDirectory(t);
  const path = join(directory, "svc.sock");
  const door = await openDoor({ socketPath: path });
  await door[Symbol.asyncDispose]();
  await t.throwsAsync(lstat(path), { code: "ENOENT" });

  const robbed = await openDoor({ socketPath: path });
  await rm(path);
  const other = createServer().listen(path);
  await once(other, "listening");
  await robbed[Symbol.asyncDispose]();
  t.true((await lstat(path)).isSocket());
  other.close();
});

test("a path that is too long for a socket is a warning", async (t) => {
  const path = join(await temporaryDirectory(t), "x".repeat(100));
  await using door = await openDoor({ socketPath: path });
  t.is(door.socketPath, "");
  t.is((await rest(door, "/v1/status")).status, 200);
});

test("a directory that is missing is made", async (t) => {
  const directory = join(await temporaryDirectory(t), "a", "b");
  await using door = await openDoor({ socketPath: join(directory, "svc.sock"), mode: "user" });
  t.is((await lstat(directory)).mode & 0o777, 0o700);
  t.is((await rest(door, "/v1/status", { listener: "unix" })).status, 200);
});

test("a TCP address in use ends the start with what to do", async (t) => {
  await using door = await openDoor();
  const { log, lines } = collectLog();
  await t.throwsAsync(openDoor({ tcp: { host: "127.0.0.1", port: door.port }, log }), {
    message: new RegExp(
      `cannot listen on 127.0.0.1:${door.port} \\(EADDRINUSE\\): .*svc listening ${door.port}`,
    ),
  });
  t.deepEqual(lines, [], "that sentence is all that is said");
});

test("root has a socket of its own, which nobody else reaches, and which goes with its daemon", async (t) => {
  const directory = await temporaryDirectory(t);
  const path = join(directory, "root/svc.sock");
  {
    await using door = await openDoor({ socketPath: join(directory, "svc.sock") });
    t.is((await lstat(join(directory, "root"))).mode & 0o777, 0o700);
    t.is((await lstat(path)).mode & 0o777, 0o600);
    t.is((await rest({ ...door, socketPath: path }, "/v1/status", { listener: "unix" })).status, 200);
  }
  await t.throwsAsync(lstat(path), { code: "ENOENT" });
});

for (const [what, mode] of [
  ["opens", 0o755],
  ["writes to", 0o770],
] as const) {
  test(`a directory that somebody else ${what} is no place for root's socket`, async (t) => {
    const directory = await temporaryDirectory(t);
    await mkdir(join(directory, "root"));
    await chmod(join(directory, "root"), mode);
    await using door = await openDoor({ socketPath: join(directory, "svc.sock") });
    await t.throwsAsync(lstat(join(directory, "root/svc.sock")), { code: "ENOENT" });
    t.true(door.lines.some(({ level, message }) => level === "warn" && message.startsWith("root has no")));
    t.is((await rest(door, "/v1/status", { listener: "unix" })).status, 200);
  });
}

test("the daemon of one user has one socket", async (t) => {
  const directory = await temporaryDirectory(t);
  await using door = await openDoor({ socketPath: join(directory, "svc.sock"), mode: "user" });
  t.not(door.socketPath, "");
  await t.throwsAsync(lstat(join(directory, "root")), { code: "ENOENT" });
});

test("root is let in before hundreds of others who came earlier", async (t) => {
  const directory = await temporaryDirectory(t);
  await using door = await openDoor({
    socketPath: join(directory, "svc.sock"),
    limits: { maxRootConnections: 2_000 },
  });
  const others = 1_000;
  let answered = 0;
  const ask = (socketPath: string, onAnswer: () => void): Promise<void> =>
    new Promise((resolve, reject) => {
      const socket = connect(socketPath).once("data", onAnswer).once("close", resolve).once("error", reject);
      socket.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    });
  const all = Array.from({ length: others }, () => ask(door.socketPath, () => answered++));
  let before = others;
  await ask(join(directory, "root/svc.sock"), () => (before = answered));
  await Promise.all(all);
  t.log(`${before} of ${others} were answered before`);
  t.is(answered, others);
  t.true(before < others / 2);
});
