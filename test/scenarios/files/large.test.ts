/** Large files over REST, whose memory is freed as soon as it has been sent. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { isRoot } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { testMs } from "../../files/support/deaths.ts";
import { type Ground, openGround, ownerUid } from "../../files/support/ground.ts";
import { keepInMemory } from "../../support/in-memory.ts";

const rootTest = isRoot ? test : test.skip;
const bigBytes = 64 << 20;

async function hashOf(path: string): Promise<string> {
  return createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
}

rootTest("large files arrive intact with their size, in chunks, and two at a time", async (t) => {
  t.timeout(testMs);
  await using ground = await openGround();
  const { home, as, daemon } = ground;
  await as(ownerUid, "sh", "-c", `head -c ${bigBytes} /dev/urandom > ${home}/big`);
  const path = join(home, "big");
  const hash = await hashOf(path);
  const curl = (remote: string, ...options: string[]) => {
    const overwrite = options.includes("-T") ? { overwrite: "true" } : undefined;
    const query = new URLSearchParams({ path: remote, ...overwrite }).toString();
    return as(
      ...([ownerUid, "curl", "-sS", "--fail", "--unix-socket", daemon.socketPath, ...options] as const),
      `http://localhost/v1/files/content?${query}`,
    );
  };
  for (const framing of [`content-length: ${bigBytes}`, "transfer-encoding: chunked"]) {
    const target = join(home, "sent");
    await curl(target, "-T", path, "-H", framing, "-o", "/dev/null");
    t.is(await hashOf(target), hash, framing);
  }
  // One helper process serves both: a chunk of its output may contain bytes of either.
  const got = ["one", "two"].map((name) => join(home, name));
  await Promise.all(got.map((target) => curl(path, "-o", target)));
  for (const target of got) t.is(await hashOf(target), hash);
  const part = join(home, "part");
  await curl(path, "-r", "12345-33333333", "-o", part);
  t.true((await readFile(part)).equals((await readFile(path)).subarray(12_345, 33_333_334)));
});

rootTest("a large file that is truncated during its download makes the download fail", async (t) => {
  t.timeout(testMs);
  await using ground = await openGround();
  const { home, as, daemon } = ground;
  const path = join(home, "big");
  await as(ownerUid, "sh", "-c", `head -c ${bigBytes} /dev/urandom > ${path}`);
  const query = new URLSearchParams({ path }).toString();
  const url = `http://localhost/v1/files/content?${query}`;
  const script = `curl -sS --unix-socket ${daemon.socketPath} '${url}' | { head -c 100000; truncate -s 20M ${path}; cat; } | wc -c`;
  const [gotBytes, said] = (await as(ownerUid, "bash", "-c", `{ ${script}; } 2>&1`))
    .trim()
    .split("\n")
    .toSorted();
  t.true(Number(gotBytes) > 0 && Number(gotBytes) < bigBytes, gotBytes);
  t.regex(said ?? "", /^curl: /);
});

rootTest("a chunk larger than a message is rejected by its size, over every protocol", async (t) => {
  await using ground = await openGround();
  const { home, connection } = ground;
  for (const protocol of ["connect", "grpc"] as const) {
    const pieces = (async function* () {
      yield { path: join(home, "sent"), content: { contentType: "", data: Buffer.from("first") } };
      await Promise.resolve();
      yield { content: { contentType: "", data: Buffer.alloc(1 << 20) } };
    })();
    const { code, message } = await errorOf(connection.client(FileService, protocol).writeFile(pieces));
    t.is(code, "ResourceExhausted", protocol);
    t.regex(message, /1048584 is larger than .* 1048576/, protocol);
    t.deepEqual(await readdir(home), [], protocol);
  }
});

// A directory of 100,000 entries is listed without blocking the daemon.

keepInMemory();

const entries = 100_000;
/** The longest wait of all others. */
const maxPauseMs = 500;
/** A busy host delays a process, too, but not each time. */
const rounds = 4;

rootTest("100,000 entries are listed while others are served", async (t) => {
  t.timeout(240_000);
  await using ground = await openGround();
  const { home, files, as } = ground;
  await as(ownerUid, "sh", "-c", `cd ${home}; seq ${entries} | xargs touch`);
  const pausesMs: number[] = [];
  for (let round = 0; round < rounds && !pausesMs.some((ms) => ms < maxPauseMs); round++) {
    await pauseMs(ground);
    let listed = 0;
    for await (const page of files.streamDirectory({ path: home })) listed += page.entries.length;
    assert.equal(listed, entries);
    pausesMs.push(await pauseMs(ground));
  }
  t.log(`longest pauses of the daemon: ${pausesMs.map(Math.round).join(", ")} ms`);
  t.true(Math.min(...pausesMs) < maxPauseMs, pausesMs.join(", "));
});

/** The longest delay since the last request, as measured by the daemon. */
async function pauseMs({ daemon }: Ground): Promise<number> {
  const headers = { authorization: `Bearer ${daemon.token}` };
  const metrics = await (await fetch(`http://127.0.0.1:${daemon.port}/metrics`, { headers })).text();
  return Number(/^svc_event_loop_delay_max_seconds (\S+)$/m.exec(metrics)?.[1] ?? 0) * 1_000;
}
