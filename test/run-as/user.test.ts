import { execFileSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { createUsers, parsePasswdLine } from "../../src/run-as/user.ts";
import { assertFails } from "./support/world.ts";

async function makeDir(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-users-"));
  t.teardown(() => rm(dir, { recursive: true }));
  return dir;
}

for (const line of [
  "",
  "# x",
  "+::::::",
  "a:x:-1:0::/:/bin/sh",
  "a:x:4294967295:0::/:/bin/sh",
  "a:x:0:0::/",
]) {
  test(`passwd line ${JSON.stringify(line)} is not a user`, (t) => t.is(parsePasswdLine(line), undefined));
}

test("a user is found by uid and by name, with all groups", async (t) => {
  const users = createUsers();
  const daemon = await users.byUid(1);
  t.is(daemon.name, "daemon");
  t.deepEqual(await users.byName("daemon"), daemon);
  const expected = execFileSync("id", ["-G", "daemon"], { encoding: "utf8" }).trim();
  t.is((await users.groupsOf(daemon)).join(" "), expected);
});

test("a uid without a passwd entry is rejected", async (t) => {
  await assertFails(t, createUsers().byUid(3_999_999_999), "failed_precondition", /no passwd entry/);
});

for (const uid of [-1, 4294967295, Number.NaN, 1.5]) {
  test(`the number ${uid} is not a uid`, async (t) => {
    await assertFails(t, createUsers().byUid(uid), "invalid_argument", /must be a number/);
  });
}

for (const name of ["", "-x", "a:b", "a\nb", "a\0b", "x".repeat(300)]) {
  test(`${JSON.stringify(name.slice(0, 10))} is not a user name`, async (t) => {
    await assertFails(t, createUsers().byName(name), "invalid_argument", /is not a valid user name/);
  });
}

test("digits are not treated as the name of the user with that uid", async (t) => {
  await assertFails(t, createUsers().byName("0"), "failed_precondition");
});

test("root is found without a process, and a program is started at its path", async (t) => {
  const [empty, dir] = [await makeDir(t), await makeDir(t)];
  const passwdFile = join(dir, "passwd");
  await writeFile(passwdFile, "root:x:0:0::/root:/bin/sh\n");
  const started = join(dir, "started");
  const line = "ann:x:1234:1235::/home/ann:/bin/sh";
  await writeFile(join(dir, "getent"), `#!/bin/sh\necho "$2" >> ${started}\necho ${line}\n`, { mode: 0o755 });
  const users = createUsers({ searchPath: `${empty}:${dir}:/usr/bin:/bin`, passwdFile });
  t.is((await users.byUid(0)).name, "root");
  await t.throwsAsync(readFile(started), { code: "ENOENT" });
  t.is((await users.byUid(1234)).name, "ann");
  t.is(await readFile(started, "utf8"), "1234\n");
});

test("root is looked up if the passwd file lacks it", async (t) => {
  const dir = await makeDir(t);
  await writeFile(join(dir, "getent"), "#!/bin/sh\necho admin:x:0:0::/root:/bin/sh\n", { mode: 0o755 });
  const users = createUsers({ searchPath: `${dir}:/usr/bin:/bin`, passwdFile: join(dir, "passwd") });
  t.is((await users.byUid(0)).name, "admin");
});

test("without getent the passwd file is read; results are cached for a while", async (t) => {
  const dir = await makeDir(t);
  const passwdFile = join(dir, "passwd");
  await writeFile(passwdFile, "root:x:0:0::/root:/bin/sh\nann:x:1234:1235:Ann,,,:/home/ann:\n");
  let now = 0;
  const users = createUsers({ searchPath: dir, passwdFile, ttlMs: 1000, now: () => now });
  const ann = { name: "ann", uid: 1234, gid: 1235, home: "/home/ann", shell: "/bin/sh" };
  t.deepEqual(await users.byUid(1234), ann);
  await writeFile(passwdFile, "root:x:0:0::/root:/bin/sh\n");
  now = 999;
  t.deepEqual(await users.byUid(1234), ann);
  now = 1001;
  await assertFails(t, users.byUid(1234), "failed_precondition");
  await assertFails(t, users.byName("ann"), "failed_precondition");
});
