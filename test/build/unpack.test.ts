/** The files of the single executable: whole, of whoever runs it, and where nobody else may write. */
import { createHash } from "node:crypto";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import type { ExecutionContext } from "ava";
import { unpackOnce } from "../../src/build/executable/unpack.ts";
import type { Packed } from "../../src/build/executable/unpack.ts";

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

test("a daemon mends what is spoiled", async (t) => {
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

test("nothing is taken from where others may write, or from somebody else", async (t) => {
  for (const open of ["", "programs", `programs/${packed.id}`]) {
    const base = await baseOf(t);
    const dir = unpackOnce(packed, [{ base, uid }], { isChecked: false });
    await chmod(join(base, "..", open), 0o777);
    t.throws(
      () => unpackOnce(packed, [{ base, uid }], { isChecked: false }),
      { message: /alone may write/ },
      dir,
    );
  }
  const base = await baseOf(t);
  unpackOnce(packed, [{ base, uid }], { isChecked: false });
  t.throws(() => unpackOnce(packed, [{ base, uid: uid + 1 }], { isChecked: false }), {
    message: /alone may write/,
  });
});

test("what the system has is taken, and what is not as it was built is not kept", async (t) => {
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
