/** Large downloads: the daemon reads the very file that the user's helper has opened (T 22). */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { chmod, readFile, readdir, readlink, truncate } from "node:fs/promises";
import { request } from "node:http";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import assert from "node:assert/strict";
import test from "ava";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { isRoot, protocols } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { helperOf, testMs, waitMs } from "./support/deaths.ts";
import { openGround, otherUid, ownerUid, type Ground } from "./support/ground.ts";

const rootTest = isRoot ? test : test.skip;
/** More than what lies in sockets and buffers on the way. */
const bigBytes = 64 << 20;

async function bigFile({ home, as }: Ground): Promise<string> {
  await as(ownerUid, "sh", "-c", `head -c ${bigBytes} /dev/urandom > ${home}/big`);
  return join(home, "big");
}

function get(socketPath: string, path: string, method = "GET"): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const query = new URLSearchParams({ path }).toString();
    const sent = request({ socketPath, method, path: `/v1/files/content?${query}` }, resolve);
    sent.on("error", reject);
    sent.end();
  });
}

function hashOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

async function held({ daemon }: Ground, path: string): Promise<number> {
  const dir = `/proc/${daemon.pid}/fd`;
  const links = await Promise.all((await readdir(dir)).map((fd) => readlink(join(dir, fd)).catch(() => "")));
  return links.filter((each) => each === path).length;
}

rootTest("a download goes on when the helper that opened the file is killed", async (t) => {
  t.timeout(testMs);
  await using ground = await openGround();
  const path = await bigFile(ground);
  const response = await get(ground.door.socketPath, path);
  t.is(response.statusCode, 200);
  await eventually(async () => assert.equal(await held(ground, path), 1), waitMs);
  process.kill(await helperOf(ground), "SIGKILL");
  const hash = createHash("sha256");
  for await (const bytes of response) hash.update(bytes as Buffer);
  t.is(hash.digest("hex"), hashOf(await readFile(path)));
  await eventually(async () => assert.equal(await held(ground, path), 0), waitMs);
});

rootTest("a download that is not read, given up or of the head alone leaves no file open", async (t) => {
  t.timeout(testMs);
  await using ground = await openGround();
  const path = await bigFile(ground);
  const given = await get(ground.door.socketPath, path);
  await eventually(async () => assert.equal(await held(ground, path), 1), waitMs);
  given.destroy();
  const head = await get(ground.door.socketPath, path, "HEAD");
  t.is(head.headers["content-length"], String(bigBytes));
  head.resume();
  await eventually(async () => assert.equal(await held(ground, path), 0), waitMs);
});

rootTest("a file that becomes shorter while it is read is told of as such", async (t) => {
  t.timeout(testMs);
  await using ground = await openGround();
  const path = await bigFile(ground);
  const response = await get(ground.door.socketPath, path);
  await eventually(async () => assert.equal(await held(ground, path), 1), waitMs);
  await truncate(path, 1 << 20);
  await t.throwsAsync(async () => {
    for await (const _ of response);
  });
  await eventually(async () => assert.equal(await held(ground, path), 0), waitMs);
});

for (const protocol of protocols.filter((name) => name !== "rest")) {
  rootTest(`large files are the same bytes, and refused to others by the kernel (${protocol})`, async (t) => {
    t.timeout(testMs);
    await using ground = await openGround();
    const path = await bigFile(ground);
    const read = async (uid: number) => {
      await using door = await ground.daemon.as(uid);
      const pieces: Buffer[] = [];
      const messages = door.client(FileService, protocol).readFile({ path, offset: 5n, length: 40_000_000n });
      // Copied: the next message may have the memory of this one.
      for await (const { content } of messages) pieces.push(Buffer.from(content?.data ?? []));
      return hashOf(Buffer.concat(pieces));
    };
    const whole = execFileSync("cat", [path], { maxBuffer: 2 * bigBytes });
    t.is(await read(otherUid), hashOf(whole.subarray(5, 40_000_005)));
    await chmod(path, 0o600);
    t.is(await read(ownerUid), hashOf(whole.subarray(5, 40_000_005)));
    t.is((await errorOf(read(otherUid))).code, "PermissionDenied");
  });
}
