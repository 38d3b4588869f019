/**
 * Another user constantly exchanges a parent directory of the caller's path for a link. Whatever the method and the
 * caller, nothing at the link's target is changed or read. The target belongs to the caller, so that only svc's own
 * checks protect it.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, chown, lchown, lstat, mkdir, readFile, readdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import type { Client } from "@connectrpc/connect";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { openGround, otherUid, ownerUid, type Ground } from "../files/support/ground.ts";
import { attackAs } from "./as-user.ts";

const run = promisify(execFile);

type Files = Client<typeof FileService>;

/** Appears only in the files outside. */
const secret = "secret of somewhere else";

/**
 * Each is called on the swapped path repeatedly; its result must not reveal the secret, and does not matter otherwise.
 */
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
  "copy all of it": async (files, at, turn) => {
    const to = `${at}.copy-${turn % 4}`;
    await files.copyPath({ from: at, to, overwrite: true });
    return contentsBelow(to);
  },
  "pack all of it": async (files, at, turn) => {
    const target = `${at}.packed-${turn % 4}.tar.gz`;
    await files.createArchive({ paths: [at], target, overwrite: true });
    return gunzipSync(await readFile(target)).toString("latin1");
  },
  "pack into it": (files, at) =>
    files.createArchive({
      paths: [`${at}.source`],
      target: join(at, "canary"),
      format: "zip",
      overwrite: true,
    }),
  "unpack into it": (files, at) => files.extractArchive({ path: `${at}.tar`, target: at, overwrite: true }),
  "unpack below it": (files, at, turn) =>
    files.extractArchive({ path: `${at}.tar`, target: join(at, `sub/new-${turn % 3}`), overwrite: true }),
  read: (files, at) => Array.fromAsync(files.readFile({ path: join(at, "canary") })),
  tail: (files, at) => Array.fromAsync(files.tailFile({ path: join(at, "canary"), lines: 5 })),
  list: (files, at) => files.listDirectory({ path: join(at, "sub") }),
  stat: (files, at) => files.statPath({ path: join(at, "sub/deep") }),
  search: (files, at) => Array.fromAsync(files.searchFiles({ path: at, content: "secret", hidden: true })),
  measure: async (files, at) => {
    const events = await Array.fromAsync(files.getDiskUsage({ path: at, depth: 5 }));
    // The outside file is the only one of that size.
    const isOutside = events.some(
      ({ event }) => "sizeBytes" in (event.value ?? {}) && sizeOf(event.value) >= deepBytes,
    );
    return isOutside ? secret : "";
  },
};

/** For each method, with four concurrent tries, on a host of any speed. */
export const leastTurns = 6;

/** The size of the largest file outside. */
const deepBytes = 1_000_000n;

function sizeOf(value: unknown): bigint {
  return (value as { sizeBytes: bigint }).sizeBytes;
}

async function contentsBelow(dir: string): Promise<string[]> {
  // A copied link remains a link.
  if (!(await lstat(dir)).isDirectory()) return [];
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return Promise.all(files.map(({ parentPath, name }) => readFile(join(parentPath, name), "latin1")));
}

/** Whether a response reveals the secret: as text, as bytes, or by the name of a file. */
function tellsSecret(answer: unknown): boolean {
  const json = JSON.stringify(answer ?? null, (_key, value: unknown) => {
    if (value instanceof Uint8Array) return Buffer.from(value).toString("latin1");
    return typeof value === "bigint" ? String(value) : value;
  });
  return json.includes(secret) || json.includes('"deep"');
}

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

/** @throws AssertionError if anything changed outside */
async function attackVerb(
  ground: Ground,
  exchanger: Exchanger,
  verb: string,
  caller: "owner" | "root",
  forMs: number,
): Promise<SwapFinding> {
  const { daemon, connection } = ground;
  const work = verbs[verb];
  assert.ok(work);
  const uid = caller === "root" ? 0 : ownerUid;
  const files =
    caller === "root" ? daemon.client(FileService, "grpc") : connection.client(FileService, "grpc");
  const place = join(daemon.dir, `swap-${caller}-${verb.replaceAll(" ", "-")}`);
  const outside = join(place, "outside");
  const shared = join(place, "shared");
  for (const dir of [place, outside, join(outside, "sub"), shared]) await mkdir(dir);
  await writeFile(join(outside, "canary"), secret);
  await writeFile(join(outside, "sub/deep"), secret.repeat(Number(deepBytes) / secret.length + 1));
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
  await lchown(join(shared, "link"), otherUid, otherUid);
  for (const name of ["named.source", "named.moved"]) await writeFile(join(shared, name), "source");
  await run("tar", [
    "-cf",
    join(shared, "named.tar"),
    "-C",
    shared,
    "--transform",
    "s/named.source/canary/",
    "named.source",
  ]);
  for (const name of ["named.source", "named.moved", "named.tar"]) await chown(join(shared, name), uid, uid);
  await exchanger.begin(shared);
  let tries = 0;
  const revealed: unknown[] = [];
  for (const end = performance.now() + forMs; tries < leastTurns || performance.now() < end; tries++) {
    const turns = await Promise.allSettled([0, 1, 2, 3].map((turn) => work(files, named, tries * 4 + turn)));
    revealed.push(
      ...turns.flatMap((turn) => (turn.status === "fulfilled" && tellsSecret(turn.value) ? turn.value : [])),
    );
  }
  const swaps = await exchanger.end();
  assert.deepEqual(await snapshot(outside), before, `${verb} by ${caller}`);
  assert.deepEqual(revealed, [], `${verb} by ${caller} reveals outside content`);
  return { verb, caller, tries: tries * 4, swaps };
}

interface Exchanger extends AsyncDisposable {
  /** Exchanges `named` and `link` in that directory from now on. */
  begin(directory: string): Promise<void>;
  /** Resolves with the number of exchanges. */
  end(): Promise<number>;
}

/** A program of this user. */
export function openExchanger(uid: number): Exchanger {
  const program = attackAs(uid, "exchanger.mjs");
  return {
    begin: async (directory) => assert.equal(await program.ask(directory), "ready"),
    end: async () => Number(await program.ask("")),
    [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
  };
}

/** Everything in a directory that a change of it would alter. */
export async function snapshot(dir: string): Promise<unknown[]> {
  const names = (await readdir(dir, { recursive: true })).sort();
  return Promise.all(
    ["", ...names].map(async (name) => {
      const { mode, uid, mtimeMs, size } = await lstat(join(dir, name));
      const isFile = (await lstat(join(dir, name))).isFile();
      return [name, mode, uid, size, mtimeMs, isFile ? await readFile(join(dir, name), "utf8") : ""];
    }),
  );
}

/** The duration of each method, as its owner and as root. */
export async function attackFiles(forMs: number): Promise<SwapFinding[]> {
  await using ground = await openGround();
  // One for all methods: starting it takes as long as trying one of them.
  await using exchanger = openExchanger(otherUid);
  const findings: SwapFinding[] = [];
  for (const verb of Object.keys(verbs)) {
    for (const caller of ["owner", "root"] as const) {
      findings.push(await attackVerb(ground, exchanger, verb, caller, forMs));
    }
  }
  return findings;
}
