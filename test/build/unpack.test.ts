/** The files of the single executable: complete, owned by the user who runs it, and not writable for others. */
import { createHash } from "node:crypto";
import {
  chmod,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { ownProgramDir, unpackOnce, type Packed } from "../../src/build/executable/unpack.ts";
import { bundledPrograms } from "../../src/daemon/programs.ts";

const uid = process.getuid?.() ?? 0;

function packedOf(texts: Readonly<Record<string, string>>): Packed {
  const files = Object.entries(texts).map(([path, text]) => ({
    path,
    mode: path.endsWith(".cjs") ? 0o755 : 0o644,
    sum: createHash("sha256").update(text).digest("hex"),
  }));
  return { id: "a".repeat(64), files, content: (path) => Buffer.from(texts[path] ?? "") };
}

const packed = packedOf({ "svc.cjs": "main", "native/koffi.node": "native" });

async function baseOf(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-unpack-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  return join(dir, "svc/programs");
}

test("the executable recognizes the helper programs that the daemon starts", (t) => {
  const dir = `/var/cache/svc/programs/${"0".repeat(64)}`;
  const { userHelper, supervisor } = bundledPrograms(dir);
  for (const program of [userHelper, supervisor]) t.is(ownProgramDir(program), dir, program);
  t.is(ownProgramDir(`${dir}/svc.cjs`), undefined);
});

test("files are written once, and nothing else is left", async (t) => {
  const base = await baseOf(t);
  const dir = unpackOnce(packed, [{ base, uid }], { isChecked: false });
  t.is(await readFile(join(dir, "native/koffi.node"), "utf8"), "native");
  t.is((await stat(join(dir, "svc.cjs"))).mode & 0o7777, 0o755);
  for (const path of [base, dir, join(dir, "native")]) t.is((await stat(path)).mode & 0o7777, 0o755);
  const { mtimeMs } = await stat(join(dir, "svc.cjs"));
  t.is(unpackOnce(packed, [{ base, uid }], { isChecked: true }), dir);
  t.is((await stat(join(dir, "svc.cjs"))).mtimeMs, mtimeMs);
  t.deepEqual(await readdir(base), [packed.id]);
});

test("a daemon repairs damaged files", async (t) => {
  const base = await baseOf(t);
  const dir = unpackOnce(packed, [{ base, uid }], { isChecked: false });
  const native = join(dir, "native/koffi.node");
  await writeFile(native, "another");
  await rm(join(dir, "svc.cjs"));
  unpackOnce(packed, [{ base, uid }], { isChecked: true });
  t.is(await readFile(native, "utf8"), "native");
  t.is(await readFile(join(dir, "svc.cjs"), "utf8"), "main");
  t.deepEqual((await readdir(dir, { recursive: true })).sort(), ["native", "native/koffi.node", "svc.cjs"]);
});

test("files in a directory that others may write to, or of another user, are not used", async (t) => {
  const base = await baseOf(t);
  const dir = unpackOnce(packed, [{ base, uid }], { isChecked: false });
  await chmod(dir, 0o777);
  t.throws(() => unpackOnce(packed, [{ base, uid }], { isChecked: false }), { message: /can write to/ });
  await chmod(dir, 0o755);
  t.throws(() => unpackOnce(packed, [{ base, uid: uid + 1 }], { isChecked: false }), {
    message: /can write to/,
  });
});

test("a directory that others could write to is closed to them, and its content is checked", async (t) => {
  for (const open of ["", "programs"]) {
    const base = await baseOf(t);
    const dir = join(base, packed.id);
    // As a umask of 002 leaves it, before the first command and after it.
    await mkdir(base, { recursive: true });
    for (const isThere of [false, true]) {
      await chmod(join(base, "..", open), 0o775);
      if (isThere) await writeFile(join(dir, "svc.cjs"), "another");
      t.is(unpackOnce(packed, [{ base, uid }], { isChecked: false }), dir);
      t.is((await stat(join(base, "..", open))).mode & 0o7777, 0o755);
      t.is(await readFile(join(dir, "svc.cjs"), "utf8"), "main");
    }
  }
});

test("remains of killed commands are removed, and delay nobody", async (t) => {
  const base = await baseOf(t);
  for (const name of [".new-old", ".new-fresh"]) await mkdir(join(base, name), { recursive: true });
  await utimes(join(base, ".new-old"), 1, 1);
  const dir = unpackOnce(packed, [{ base, uid }], { isChecked: false });
  t.deepEqual((await readdir(base)).sort(), [".new-fresh", packed.id]);
  await rm(join(dir, "svc.cjs"));
  await writeFile(join(dir, `svc.cjs.${process.pid}`), "half");
  unpackOnce(packed, [{ base, uid }], { isChecked: true });
  t.deepEqual((await readdir(dir)).sort(), ["native", "svc.cjs"]);
});

test("a system directory that is not trusted or not visible is not used", async (t) => {
  const [system, own] = [await baseOf(t), await baseOf(t)];
  const dir = unpackOnce(packed, [{ base: system, uid }], { isChecked: false });
  const places = [
    { base: system, uid },
    { base: own, uid },
  ];
  await chmod(dir, 0o777);
  t.is(unpackOnce(packed, places, { isChecked: false }), join(own, packed.id));
  // Even root cannot look below it.
  const loop = join(system, "loop");
  await symlink("loop", loop);
  places[0] = { base: join(loop, "programs"), uid };
  t.is(unpackOnce(packed, places, { isChecked: false }), join(own, packed.id));
});

test("the system's files are used, and changed ones are replaced", async (t) => {
  const [system, own] = [await baseOf(t), await baseOf(t)];
  const dir = unpackOnce(packed, [{ base: system, uid }], { isChecked: false });
  const places = [
    { base: system, uid },
    { base: own, uid },
  ];
  t.is(unpackOnce(packed, places, { isChecked: true }), dir);
  await mkdir(own, { recursive: true });
  t.throws(
    () =>
      unpackOnce({ ...packed, content: () => Buffer.from("another") }, [{ base: own, uid }], {
        isChecked: false,
      }),
    { message: /not what was built/ },
  );
  t.deepEqual(await readdir(own), []);
});
