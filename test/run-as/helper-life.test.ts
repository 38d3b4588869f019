import { spawn } from "node:child_process";
import { chmod, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { createUserHelpers } from "../../src/run-as/user-helpers.ts";
import { assertFails, createWorld, eventually, isAlive, rootTest, someUid } from "./support/world.ts";

const whoHelps = async (user: { runCommand: (argv: string[]) => Promise<{ stdout: string }> }) =>
  Number((await user.runCommand(["sh", "-c", "echo $PPID"])).stdout);

/** Children of this process; other tests run in other processes. */
async function children(): Promise<number> {
  const text = await readFile(`/proc/self/task/${process.pid}/children`, "latin1");
  return text.split(" ").filter(Boolean).length;
}

test.serial(
  "each user has one helper, which stays while there is work, stops when idle, and starts again",
  async (t) => {
    await using world = await createWorld({ idleMs: 300 });
    const { user, userHelpers } = world;
    const again = await userHelpers.as(someUid);
    const [first, second] = await Promise.all([whoHelps(user), whoHelps(again)]);
    t.is(second, first);
    t.true(await isAlive(first));
    await user.runCommand(["sleep", "0.6"]);
    t.is(await whoHelps(user), first, "a busy helper is not idle");
    await eventually(t, "it is stopped", async () => !(await isAlive(first)));
    t.not(await whoHelps(user), first);
  },
);

test.serial("a killed helper is replaced", async (t) => {
  await using world = await createWorld();
  const { user } = world;
  const first = await whoHelps(user);
  process.kill(first, "SIGKILL");
  await eventually(t, "it is gone", async () => !(await isAlive(first)));
  await eventually(t, "another one works", () =>
    whoHelps(user).then(
      (pid) => pid !== first,
      () => false,
    ),
  );
  t.false(await isAlive(first));
});

test.serial("work whose helper gets SIGTERM fails with that reason", async (t) => {
  await using world = await createWorld();
  const long = world.user.runCommand(["sleep", "300"]);
  process.kill(await whoHelps(world.user), "SIGTERM");
  await assertFails(t, long, "unavailable", /its helper process received SIGTERM; try again/);
});

rootTest("the number of helpers is limited: an idle one is replaced, a busy one is waited for", async (t) => {
  await using world = await createWorld({ maxHelpers: 1 });
  const { userHelpers, user } = world;
  const other = await userHelpers.as(1);
  const first = await whoHelps(user);
  const busy = other.runCommand(["sleep", "0.5"]);
  await eventually(t, "the idle one makes room", async () => !(await isAlive(first)));
  await assertFails(t, user.stat("/", "etc", { timeoutMs: 50 }), "deadline_exceeded", /waited too long/);
  const stop = new AbortController();
  const canceled = user.stat("/", "etc", { signal: stop.signal });
  stop.abort();
  await assertFails(t, canceled, "canceled");
  t.is((await user.stat("/", "etc"))?.type, "directory");
  await busy;
});

rootTest("root gets a helper while users' commands hold all helpers", async (t) => {
  await using world = await createWorld({ maxHelpers: 1 });
  const { userHelpers, user } = world;
  const stop = new AbortController();
  const busy = user.runCommand(["sleep", "300"], { signal: stop.signal });
  const root = await userHelpers.as(0);
  t.is((await root.stat("/", "etc", { timeoutMs: 10_000 }))?.type, "directory");
  const other = await userHelpers.as(1);
  await assertFails(t, other.stat("/", "etc", { timeoutMs: 50 }), "deadline_exceeded", /waited too long/);
  stop.abort();
  await assertFails(t, busy, "canceled");
});

test("many concurrent requests all succeed", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await user.writeFile(app, "f", "x");
  const answers = await Promise.all(Array.from({ length: 500 }, () => user.readFile(app, "f")));
  t.is(answers.length, 500);
  const many = Array.from({ length: 1200 }, () => user.stat(app, "f"));
  const refused = (await Promise.allSettled(many)).filter(({ status }) => status === "rejected");
  t.true(refused.length > 0 && refused.length <= 1200 - 1024, `${refused.length} refused`);
});

test("an aborted signal, or a message above the limit, starts nothing", async (t) => {
  await using world = await createWorld();
  const { app, user } = world;
  await assertFails(t, user.writeFile(app, "f", "x", { signal: AbortSignal.abort() }), "canceled");
  await assertFails(t, user.writeFile(app, "f", Buffer.alloc(9 << 20)), "resource_exhausted");
  await assertFails(t, user.runCommand(["true", "x".repeat(5 << 20)]), "resource_exhausted");
  t.is(await user.stat(app, "f"), undefined);
});

test.serial("disposing cancels the work and reaps every helper", async (t) => {
  const before = await children();
  const world = await createWorld({});
  const long = world.user.runCommand(["sleep", "300"]);
  long.catch(() => undefined);
  await whoHelps(world.user);
  await world.userHelpers[Symbol.asyncDispose]();
  await assertFails(t, long, "unavailable", /^the work was interrupted: svc is stopping;/);
  t.is(await children(), before);
  await assertFails(t, world.user.stat("/", "."), "unavailable", /stopping/);
  await rm(world.dir, { recursive: true });
});

test("helpers and commands exit when the daemon is killed; detached processes stay", async (t) => {
  await using world = await createWorld();
  const { app } = world;
  const script = `
    import { createUserHelpers } from ${JSON.stringify(new URL("../../src/run-as/user-helpers.ts", import.meta.url).href)};
    const user = await createUserHelpers().as(${someUid});
    await user.spawnDetached(["sh", "-c", "echo $$ > detached; exec sleep 300"], { cwd: ${JSON.stringify(app)} });
    await user.runCommand(["sh", "-c", "echo $PPID $$ > pids; exec sleep 300"], { cwd: ${JSON.stringify(app)} });`;
  const daemon = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: "inherit" });
  const pidsIn = async (name: string) => {
    const text = await readFile(join(app, name), "utf8").catch(() => "");
    return text.endsWith("\n") ? text.trim().split(" ").map(Number) : [];
  };
  await eventually(t, "everything runs", async () => (await pidsIn("pids")).length === 2);
  daemon.kill("SIGKILL");
  for (const pid of await pidsIn("pids")) {
    await eventually(t, `${pid} has ended`, async () => !(await isAlive(pid)));
  }
  const [detached = 0] = await pidsIn("detached");
  t.true(await isAlive(detached));
  process.kill(detached, "SIGKILL");
});

const hello = 'send({ hello: 1 }); process.stdin.on("data", (bytes) => { const id = 1; ';
for (const [what, body] of [
  ["sends garbage", `${hello} process.stdout.write("garbage, and much of it"); });`],
  ["sends an endless frame", `${hello} process.stdout.write(Buffer.alloc(8, 0xff)); });`],
  ["sends no JSON", `${hello} process.stdout.write(Buffer.from("000000010000000078", "hex")); });`],
  [
    "overruns the window",
    `${hello} for (let i = 0; i < 64; i++) send({ id, chunk: true }, Buffer.alloc(1 << 16)); });`,
  ],
  ["acknowledges what was not sent", `${hello} send({ id, ack: 1e9 }); });`],
  ["dies", `${hello} process.exit(1); });`],
  ["never says hello and dies", `process.exit(1);`],
] as const) {
  test(`a helper that ${what} fails only its request`, async (t) => {
    await using world = await createWorld();
    const helperPath = join(world.dir, "helper.mjs");
    const send =
      "const send = (header, data = Buffer.alloc(0)) => { const json = Buffer.from(JSON.stringify(header)); const prefix = Buffer.alloc(8);" +
      "prefix.writeUInt32BE(json.length, 0); prefix.writeUInt32BE(data.length, 4); process.stdout.write(Buffer.concat([prefix, json, data])); };\n";
    await writeFile(helperPath, send + body);
    await chmod(helperPath, 0o644);
    const { createUserHelpers } = await import("../../src/run-as/user-helpers.ts");
    await using userHelpers = createUserHelpers({ helperPath });
    const user = await userHelpers.as(someUid);
    const error = await t.throwsAsync(user.runCommand(["true"], { timeoutMs: 20_000 }));
    t.regex(String(error), /violated the protocol|its helper process ended|cannot act as/);
  });
}

for (const [what, value] of [
  ["a string", '"1e9"'],
  ["a negative number", "[-1]"],
  ["too few", "[]"],
  ["an infinite one", "[1e999]"],
  ["nothing", "null"],
] as const) {
  test(`a helper that returns ${what} for a size is not believed`, async (t) => {
    await using world = await createWorld();
    const helperPath = join(world.dir, "helper.mjs");
    await writeFile(
      helperPath,
      "const send = (json) => { const prefix = Buffer.alloc(8); prefix.writeUInt32BE(json.length, 0); process.stdout.write(Buffer.concat([prefix, Buffer.from(json)])); };\n" +
        `send('{"hello":1}'); process.stdin.on("data", () => send('{"id":1,"ok":true,"value":${value}}'));`,
    );
    const { createUserHelpers } = await import("../../src/run-as/user-helpers.ts");
    await using userHelpers = createUserHelpers({ helperPath });
    const user = await userHelpers.as(someUid);
    await assertFails(t, user.measure("/tmp", ["x"]), "internal", /invalid response/);
  });
}

test("the helper imports only Node's modules, its own files and those of sys", async (t) => {
  const own = fileURLToPath(new URL("../../src/run-as/helper/", import.meta.url));
  const sys = fileURLToPath(new URL("../../src/sys/", import.meta.url));
  const plain = (await readdir(sys)).filter((name) => name.endsWith(".mjs"));
  const files = [
    join(own, "../helper.mjs"),
    ...(await readdir(own, { recursive: true })).map((name) => join(own, name)),
    ...plain.map((name) => join(sys, name)),
  ].filter((file) => file.endsWith(".mjs"));
  for (const file of files) {
    const places = file.startsWith(sys) ? [sys] : [own, sys];
    const imports = [
      ...(await readFile(file, "utf8")).matchAll(/^import .*?"([^"]+)";$|^} from "([^"]+)";$/gms),
    ];
    for (const [, one, other] of imports) {
      const path = one ?? other ?? "";
      if (path.startsWith("node:")) continue;
      t.true(path.startsWith(".") && path.endsWith(".mjs"), `${file}: ${path}`);
      const target = join(dirname(file), path);
      t.true(
        places.some((place) => target.startsWith(place)),
        `${file}: ${path}`,
      );
    }
  }
});

test("a helper that exits is not waited for if other processes hold its pipes open", async (t) => {
  await using place = await createWorld();
  const helperPath = join(place.dir, "helper.mjs");
  const pidFile = join(place.app, "holder");
  // Holds all of them open, and reports its PID.
  const holder = `process.stdin.resume(); require("fs").writeFileSync(${JSON.stringify(pidFile)}, String(process.pid)); setTimeout(() => {}, 600_000);`;
  await writeFile(
    helperPath,
    `import { spawn } from "node:child_process";
const json = Buffer.from('{"hello":1}'); const prefix = Buffer.alloc(8); prefix.writeUInt32BE(json.length, 0);
process.stdout.write(Buffer.concat([prefix, json]));
process.stdin.once("data", () => {
  spawn(process.execPath, ["-e", ${JSON.stringify(holder)}], { stdio: ["pipe", "inherit", "inherit"], detached: true });
  setInterval(() => { if (require("fs").existsSync(${JSON.stringify(pidFile)})) process.kill(process.pid, "SIGKILL"); }, 20);
});
import { createRequire } from "node:module"; const require = createRequire(import.meta.url);`,
  );
  await chmod(helperPath, 0o644);
  const userHelpers = createUserHelpers({ helperPath });
  try {
    const user = await userHelpers.as(someUid);
    await assertFails(t, user.stat(place.app, "f"), "unavailable", /interrupted/);
  } finally {
    process.kill(Number(await readFile(pidFile, "latin1")), "SIGKILL");
    await userHelpers[Symbol.asyncDispose]();
  }
});
