/** The way down into a tree, and back: never to another place than the one it came from. */
import { closeSync, openSync } from "node:fs";
import { mkdir, mkdtempDisposable, rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { Trail } from "../../src/identity/helper/trail.mjs";

/** More than keep their descriptor. */
const levels = 80;

test("a directory that is moved while the walk is below it is not left to where it lies now", async (t) => {
  await using place = await mkdtempDisposable(join(tmpdir(), "svc-trail-"));
  const names = Array.from({ length: levels }, (_, index) => `d${index}`);
  await mkdir(join(place.path, ...names), { recursive: true });
  await mkdir(join(place.path, "elsewhere"));
  const start = openSync(place.path, "r");
  const walk = (): Trail => {
    const trail = new Trail(start);
    for (const name of names) trail.enter(name);
    return trail;
  };
  const back = (trail: Trail): void => {
    for (const _name of names) trail.leave();
  };
  try {
    t.notThrows(() => back(walk()));
    const trail = walk();
    await rename(join(place.path, ...names.slice(0, 10)), join(place.path, "elsewhere/d9"));
    t.throws(() => back(trail), { message: /was moved while it was walked/ });
    trail[Symbol.dispose]();
  } finally {
    closeSync(start);
  }
});
