/** The file of the unix socket: stale files are replaced, live ones stay, and a daemon removes only its own. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, lstat, mkdir, mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { tryLock } from "../../../src/sys/file-lock.ts";
import { rest } from "./support/clients.ts";
import { openDoor } from "./support/door.ts";
import { nextEvent } from "../../support/eventually.ts";

async function temporaryDirectory(t: ExecutionContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "svc-socket-"));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

test("the file of a dead daemon is replaced", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const program = `require("net").createServer().listen(${JSON.stringify(path)}, () => console.log("up"))`;
  const child = spawn(process.execPath, ["-e", program], { stdio: ["ignore", "pipe", "inherit"] });
  await nextEvent(child.stdout, "data");
  child.kill("SIGKILL");
  await nextEvent(child, "exit");
  t.true((await lstat(path)).isSocket());

  await using door = await openDoor({ socketPath: path });
  t.is(door.socketPath, path);
  t.is((await rest(door, "/v1/status", { listener: "unix" })).status, 200);
});

test("a live socket of another process is never replaced", async (t) => {
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

test("a second daemon does not touch the first one's socket, also when it exits", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await using first = await openDoor({ socketPath: path });
  const second = await openDoor({ socketPath: path });
  t.is(second.socketPath, "");
  await second[Symbol.asyncDispose]();
  t.is((await rest(first, "/v1/status", { listener: "unix" })).status, 200);
});

test("without TCP a socket in use fails the start", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await using _first = await openDoor({ socketPath: path });
  await t.throwsAsync(openDoor({ socketPath: path, tcp: undefined }), {
    message: `another daemon serves ${path}`,
  });
});

test("two daemons that start concurrently get one socket", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  const doors = await Promise.all([1, 2, 3, 4].map(() => openDoor({ socketPath: path })));
  t.is(doors.filter((door) => door.socketPath === path).length, 1);
  for (const door of doors) await door[Symbol.asyncDispose]();
});

test("a socket path locked by another daemon is taken before it listens, and free after the lock is released", async (t) => {
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

test("a file that is not a socket stays", async (t) => {
  const path = join(await temporaryDirectory(t), "svc.sock");
  await writeFile(path, "precious");
  await using door = await openDoor({ socketPath: path });
  t.is(door.socketPath, "");
  t.is(await readFile(path, "utf8"), "precious");
});

test("a stop removes only the own file", async (t) => {
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

test("a missing directory is created", async (t) => {
  const directory = join(await temporaryDirectory(t), "a", "b");
  await using door = await openDoor({ socketPath: join(directory, "svc.sock"), mode: "user" });
  t.is((await lstat(directory)).mode & 0o777, 0o700);
  t.is((await rest(door, "/v1/status", { listener: "unix" })).status, 200);
});

test("root has a separate socket that only root can reach, and that is removed with its daemon", async (t) => {
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
  test(`a directory that another user ${what} is rejected for root's socket`, async (t) => {
    const directory = await temporaryDirectory(t);
    await mkdir(join(directory, "root"));
    await chmod(join(directory, "root"), mode);
    await using door = await openDoor({ socketPath: join(directory, "svc.sock") });
    await t.throwsAsync(lstat(join(directory, "root/svc.sock")), { code: "ENOENT" });
    t.true(
      door.lines.some(
        ({ level, message }) =>
          level === "warn" && message.startsWith("failed to bind root's separate socket"),
      ),
    );
    t.is((await rest(door, "/v1/status", { listener: "unix" })).status, 200);
  });
}

test("the daemon of one user has one socket", async (t) => {
  const directory = await temporaryDirectory(t);
  await using door = await openDoor({ socketPath: join(directory, "svc.sock"), mode: "user" });
  t.not(door.socketPath, "");
  await t.throwsAsync(lstat(join(directory, "root")), { code: "ENOENT" });
});

test("root is accepted before hundreds of earlier connections of others", async (t) => {
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
  t.log(`${before} of ${others} got their response before`);
  t.is(answered, others);
  t.true(before < others / 2);
});
