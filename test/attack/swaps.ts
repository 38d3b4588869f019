/**
 * A directory on the way to what a caller names, which somebody else exchanges for a link all the time: whatever the verb, and
 * whoever calls, nothing changes where the link leads (T 22, 23). What lies there belongs to the caller, so that nothing but
 * svc's own care keeps it whole.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, chown, lstat, mkdir, readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Client } from "@connectrpc/connect";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { openGround, otherUid, ownerUid, type Ground } from "../files/support/ground.ts";

const exchanger = fileURLToPath(new URL("./exchanger.mjs", import.meta.url));

type Files = Client<typeof FileService>;

/** Each is done to the path that is swapped, over and over; what it comes to does not matter. */
export const verbs: Readonly<Record<string, (files: Files, at: string, turn: number) => Promise<unknown>>> = {
  write: (files, at, turn) => files.writeFile(upload(join(at, "canary"), `new ${turn}`)),
  "write a new one": (files, at, turn) => files.writeFile(upload(join(at, `new-${turn % 3}`), "x")),
  "make a directory": (files, at, turn) =>
    files.createDirectory({ path: join(at, `dir-${turn % 3}/sub`), parents: true }),
  delete: (files, at) => files.deletePaths({ paths: [join(at, "canary"), join(at, "sub")] }),
  "delete all of it": async (files, at) => {
    await files.deletePaths({ paths: [at] });
  },
  "set modes": (files, at) => files.setPathAttributes({ path: join(at, "canary"), mode: "0666" }),
  "set modes below": (files, at) => files.setPathAttributes({ path: at, mode: "0777", recursive: true }),
  "move away": (files, at) =>
    files.movePath({ from: join(at, "canary"), to: `${at}.moved`, overwrite: true }),
  "move in": (files, at) => files.movePath({ from: `${at}.moved`, to: join(at, "canary"), overwrite: true }),
  "copy in": (files, at) => files.copyPath({ from: `${at}.source`, to: join(at, "canary"), overwrite: true }),
};

async function* upload(path: string, text: string) {
  yield { path, overwrite: true, content: { contentType: "", data: Buffer.from(text) } };
  await Promise.resolve();
}

export interface SwapFinding {
  verb: string;
  caller: string;
  tries: number;
  swaps: number;
}

/** @throws AssertionError when anything changed outside */
export async function attackVerb(
  ground: Ground,
  verb: string,
  caller: "owner" | "root",
  forMs: number,
): Promise<SwapFinding> {
  const { daemon, door } = ground;
  const work = verbs[verb];
  assert.ok(work);
  const uid = caller === "root" ? 0 : ownerUid;
  const files = caller === "root" ? daemon.client(FileService, "grpc") : door.client(FileService, "grpc");
  const place = join(daemon.dir, `swap-${caller}-${verb.replaceAll(" ", "-")}`);
  const outside = join(place, "outside");
  const shared = join(place, "shared");
  for (const dir of [place, outside, join(outside, "sub"), shared]) await mkdir(dir);
  await writeFile(join(outside, "canary"), "canary");
  await writeFile(join(outside, "sub/deep"), "canary");
  for (const path of ["", "sub", "canary", "sub/deep"]) {
    await chown(join(outside, path), uid, uid);
    await chmod(join(outside, path), path.endsWith("canary") || path.endsWith("deep") ? 0o600 : 0o755);
  }
  const before = await snapshot(outside);
  await chown(shared, otherUid, otherUid);
  await chmod(shared, 0o777);
  await chmod(place, 0o755);
  const named = join(shared, "named");
  await mkdir(named);
  await chown(named, uid, uid);
  await symlink(outside, join(shared, "link"));
  await ground.as(otherUid, "sh", "-c", `rm -f ${shared}/link 2>/dev/null; ln -s ${outside} ${shared}/link`);
  for (const name of ["named.source", "named.moved"]) {
    await writeFile(join(shared, name), "source");
    await chown(join(shared, name), uid, uid);
  }
  const attacker = spawn(
    "setpriv",
    [
      ...[`--reuid=${otherUid}`, `--regid=${otherUid}`, "--clear-groups", "--"],
      ...[process.execPath, exchanger, shared, "named", "link"],
    ],
    { stdio: ["pipe", "pipe", "inherit"] },
  );
  await once(attacker.stdout, "data");
  let tries = 0;
  for (const end = performance.now() + forMs; performance.now() < end; tries++) {
    await Promise.allSettled([0, 1, 2, 3].map((turn) => work(files, named, tries * 4 + turn)));
  }
  const counted = once(attacker.stdout, "data") as Promise<[Buffer]>;
  attacker.stdin.end();
  const [swaps] = await counted;
  assert.deepEqual(await snapshot(outside), before, `${verb} by ${caller}`);
  return { verb, caller, tries: tries * 4, swaps: Number(swaps.toString()) };
}

async function snapshot(dir: string): Promise<unknown[]> {
  const names = (await readdir(dir, { recursive: true })).sort();
  return Promise.all(
    ["", ...names].map(async (name) => {
      const { mode, uid, mtimeMs, size } = await lstat(join(dir, name));
      const isFile = (await lstat(join(dir, name))).isFile();
      return [name, mode, uid, size, mtimeMs, isFile ? await readFile(join(dir, name), "utf8") : ""];
    }),
  );
}

/** Each verb for so long, as its owner and as root. */
export async function attackFiles(forMs: number): Promise<SwapFinding[]> {
  await using ground = await openGround();
  const findings: SwapFinding[] = [];
  for (const verb of Object.keys(verbs)) {
    for (const caller of ["owner", "root"] as const) {
      findings.push(await attackVerb(ground, verb, caller, forMs));
    }
  }
  return findings;
}
