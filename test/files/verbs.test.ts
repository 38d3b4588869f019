/** The file service over every protocol, as a user. */
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { lchownSync, symlinkSync, writeFileSync } from "node:fs";
import {
  chmod,
  chown,
  link,
  lstat,
  mkdir,
  mkdtempDisposable,
  readFile,
  readdir,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import test from "ava";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { isRoot, protocols } from "../support/daemon.ts";
import { errorOf } from "../support/errors.ts";
import { otherUid, ownerUid } from "./support/ground.ts";
import { sharedGround } from "./support/shared-ground.ts";

const rootTest = isRoot ? test : test.skip;
const newGround = sharedGround();

interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: Buffer;
}

function rest(
  socketPath: string,
  method: string,
  path: string,
  { body, headers = {} }: { body?: string | Buffer; headers?: Record<string, string> } = {},
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request({ socketPath, method, path, headers }, (response) => {
      buffer(response).then(
        (bytes) => resolve({ status: response.statusCode ?? 0, headers: response.headers, body: bytes }),
        reject,
      );
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

function contentPath(path: string, query: Record<string, string> = {}): string {
  return `/v1/files/content?${new URLSearchParams({ path, ...query }).toString()}`;
}

async function* pieces(path: string, ...texts: string[]) {
  for (const [index, text] of texts.entries()) {
    yield {
      ...(index === 0 && { path, overwrite: true }),
      content: { contentType: "", data: Buffer.from(text) },
    };
    await Promise.resolve();
  }
}

for (const protocol of protocols) {
  rootTest(`every method works with its caller's identity (${protocol})`, async (t) => {
    const ground = await newGround();
    const { home, connection } = ground;
    const files = connection.client(FileService, protocol);
    const made = await files.createDirectory({ path: `${home}/a/b`, parents: true, mode: "0770" });
    t.like(made, {
      name: "b",
      type: "directory",
      mode: "0770",
      owner: "games",
      group: "games",
      uid: ownerUid,
    });
    if (protocol === "grpc") {
      const written = await files.writeFile(pieces(`${home}/a/one.txt`, "hello ", "world"));
      t.like(written, { name: "one.txt", type: "file", sizeBytes: 11n, mode: "0644", owner: "games" });
    } else await ground.as(ownerUid, "sh", "-c", `printf 'hello world' > ${home}/a/one.txt`);
    if (protocol !== "rest") {
      const chunks = await Array.fromAsync(files.readFile({ path: `${home}/a/one.txt`, offset: 6n }));
      t.is(Buffer.concat(chunks.map(({ content }) => content?.data ?? Buffer.alloc(0))).toString(), "world");
      t.is(chunks[0]?.sizeBytes, 11n);
    }
    const changed = await files.setPathAttributes({ path: `${home}/a/one.txt`, mode: "0600" });
    t.is(changed.mode, "0600");
    const copied = await files.copyPath({ from: `${home}/a`, to: `${home}/c` });
    t.is(copied.copiedBytes, 11n);
    t.like(copied.entry, { name: "c", type: "directory" });
    const moved = await files.movePath({ from: `${home}/c/one.txt`, to: `${home}/c/two.txt` });
    t.is(moved.path, `${home}/c/two.txt`);
    const { entries, directory } = await files.listDirectory({ path: `${home}/c` });
    t.deepEqual(
      entries.map(({ name, type }) => [name, type]),
      [
        ["b", "directory"],
        ["two.txt", "file"],
      ],
    );
    t.is(directory?.name, "c");
    const { deleted, failed } = await files.deletePaths({ paths: [`${home}/c`, `${home}/nothing`] });
    t.deepEqual(deleted, [`${home}/c`]);
    t.deepEqual(
      failed.map(({ path }) => path),
      [`${home}/nothing`],
    );
    t.like(await errorOf(files.statPath({ path: `${home}/c` })), { code: "NotFound", reason: "not_found" });
    const { users, groups } = await files.listSystemIdentities({});
    t.true(users.some(({ name, uid }) => name === "games" && uid === 5));
    t.true(groups.some(({ name }) => name === "games"));
    // Files are created with the caller's own identity.
    const { uid, gid } = await stat(`${home}/a/one.txt`);
    t.deepEqual([uid, gid], [ownerUid, 60]);
  });
}

rootTest("an operation that the kernel denies a user is denied, in every method", async (t) => {
  const ground = await newGround();
  const { home, files, daemon } = ground;
  const theirs = join(daemon.dir, "theirs");
  await mkdir(theirs);
  await writeFile(join(theirs, "secret"), "secret");
  await chmod(join(theirs, "secret"), 0o600);
  await chown(theirs, otherUid, otherUid);
  await chown(join(theirs, "secret"), otherUid, otherUid);
  await writeFile(join(home, "own"), "own");
  await chown(join(home, "own"), ownerUid, 60);
  const secret = join(theirs, "secret");
  for (const [what, work] of Object.entries({
    read: () => Array.fromAsync(files.readFile({ path: secret })),
    make: () => files.createDirectory({ path: join(theirs, "x") }),
    move: () => files.movePath({ from: secret, to: join(home, "stolen") }),
    "move in": () => files.movePath({ from: join(home, "own"), to: join(theirs, "own") }),
    copy: () => files.copyPath({ from: secret, to: join(home, "stolen") }),
    "copy in": () => files.copyPath({ from: join(home, "own"), to: join(theirs, "own") }),
    mode: () => files.setPathAttributes({ path: secret, mode: "0666" }),
    owner: () => files.setPathAttributes({ path: join(home, "own"), owner: "root" }),
    shadow: () => Array.fromAsync(files.readFile({ path: "/etc/shadow" })),
  })) {
    t.like(await errorOf(work()), { code: "PermissionDenied", reason: "denied" }, what);
  }
  const { deleted, failed } = await files.deletePaths({ paths: [secret, theirs] });
  t.deepEqual(deleted, []);
  t.deepEqual(
    failed.map(({ path }) => path),
    [secret, secret],
  );
  t.regex(failed[0]?.error ?? "", /permission denied/);
  const upload = await rest(ground.connection.socketPath, "PUT", contentPath(secret, { overwrite: "1" }), {
    body: "x",
  });
  t.is(upload.status, 403);
  t.regex(upload.body.toString(), /permission denied/);
  t.is(await readFile(secret, "utf8"), "secret");
  t.deepEqual((await readdir(theirs)).sort(), ["secret"]);
  t.deepEqual((await readdir(home)).sort(), ["own"]);
});

rootTest("downloads support ranges, entity tags, names and HEAD", async (t) => {
  const ground = await newGround();
  const { home, connection } = ground;
  const path = join(home, "ä b'.bin");
  const content = Buffer.from(Array.from({ length: 700_000 }, (_, index) => index % 251));
  await writeFile(path, content);
  await chmod(path, 0o644);
  const get = (headers: Record<string, string> = {}, query: Record<string, string> = {}) =>
    rest(connection.socketPath, "GET", contentPath(path, query), { headers });
  const whole = await get();
  t.is(whole.status, 200);
  t.true(whole.body.equals(content));
  t.is(whole.headers["content-length"], "700000");
  t.is(whole.headers["content-type"], "application/octet-stream");
  t.is(whole.headers["accept-ranges"], "bytes");
  t.is(whole.headers["content-disposition"], "attachment; filename*=UTF-8''%C3%A4%20b%27.bin");
  const tag = String(whole.headers["etag"]);
  for (const [range, start, end] of [
    ["bytes=0-0", 0, 0],
    ["bytes=100-299999", 100, 299_999],
    ["bytes=699999-", 699_999, 699_999],
    ["bytes=600000-9999999", 600_000, 699_999],
    ["bytes=-5", 699_995, 699_999],
  ] as const) {
    const part = await get({ range, "if-range": tag });
    t.is(part.status, 206, range);
    t.is(part.headers["content-range"], `bytes ${start}-${end}/700000`, range);
    t.true(part.body.equals(content.subarray(start, end + 1)), range);
  }
  const beyond = await get({ range: "bytes=700000-" });
  t.is(beyond.status, 416);
  t.is((await get({ range: "bytes=1-2", "if-range": '"other"' })).body.length, 700_000);
  t.is((await get({}, { offset: "699990" })).body.length, 10);
  t.is((await get({}, { offset: "10", length: "7" })).body.length, 7);
  const head = await rest(connection.socketPath, "HEAD", contentPath(path));
  t.deepEqual([head.status, head.headers["content-length"], head.headers["etag"]], [200, "700000", tag]);
  t.is((await get({}, { path: join(home, "nothing") })).status, 404);
  t.is((await get({}, { path: home })).status, 409);
  await writeFile(path, "");
  t.is((await get()).body.length, 0);
});

rootTest(
  "an upload keeps the attributes of the replaced file, and never overwrites a concurrent change",
  async (t) => {
    const ground = await newGround();
    const { home, connection } = ground;
    const path = join(home, "page.html");
    const put = (body: string, headers: Record<string, string> = {}, query: Record<string, string> = {}) =>
      rest(connection.socketPath, "PUT", contentPath(path, query), { body, headers });
    const first = await put("one", {}, { mode: "0640" });
    t.is(first.status, 200);
    t.is((await stat(path)).mode & 0o7777, 0o640);
    t.is((await put("two")).status, 409);
    await chmod(path, 0o604);
    execFileSync("setfattr", ["-n", "user.note", "-v", "kept", path]);
    const { etag } = JSON.parse(
      (await rest(connection.socketPath, "GET", `/v1/files/stat?path=${path}`)).body.toString(),
    ) as {
      etag: string;
    };
    const matched = await put("three", { "if-match": `"${etag}"` });
    t.is(matched.status, 200);
    const kept = await stat(path);
    t.deepEqual([kept.mode & 0o7777, kept.uid], [0o604, ownerUid]);
    t.regex(execFileSync("getfattr", ["-d", path], { encoding: "utf8" }), /user.note="kept"/);
    const stale = await put("four", { "if-match": `"${etag}"` });
    t.is(stale.status, 412);
    t.is((JSON.parse(stale.body.toString()) as { reason: string }).reason, "changed");
    t.is(await readFile(path, "utf8"), "three");
    t.is((await put("five", {}, { overwrite: "true", path: home, name: "page.html" })).status, 200);
    for (const tag of ['"x"', "*"])
      t.is((await put("six", { "if-match": tag }, { path: home, name: "new" })).status, 412, tag);
    t.is((await put("six", {}, { path: home, name: "../x" })).status, 400);
    // One of two concurrent editors succeeds.
    const now = JSON.parse((await put("seven", {}, { overwrite: "1" })).body.toString()) as { etag: string };
    const race = await Promise.all(
      Array.from({ length: 8 }, (_, index) => put(`editor ${index}`, { "if-match": `"${now.etag}"` })),
    );
    t.deepEqual(race.map(({ status }) => status).sort(), [200, 412, 412, 412, 412, 412, 412, 412]);
    t.deepEqual(await readdir(home), ["page.html"]);
    // Rejected before its content is sent.
    const early = await new Promise<number>((resolve, reject) => {
      const asked = { socketPath: connection.socketPath, method: "PUT", path: contentPath(path) };
      const sent = request({ ...asked, headers: { "content-length": "1000000" } }, (response) => {
        resolve(response.statusCode ?? 0);
        sent.destroy();
      });
      sent.setTimeout(20_000, () => sent.destroy(new Error("it waits for the content")));
      sent.on("error", reject);
      sent.write("first of many");
    });
    t.is(early, 409);
    // New content does not run as its owner.
    await chmod(path, 0o6755);
    t.is((await put("eight", {}, { overwrite: "1" })).status, 200);
    t.is((await stat(path)).mode & 0o7777, 0o755);
    // Attributes of root's file stay when root replaces it through the daemon.
    const asRoot = await rest(ground.daemon.socketPath, "PUT", contentPath(path, { overwrite: "1" }), {
      body: "root",
    });
    t.is(asRoot.status, 200);
    t.is((await stat(path)).uid, ownerUid);
  },
);

rootTest("an interrupted upload leaves nothing", async (t) => {
  const ground = await newGround();
  const { home, connection } = ground;
  await writeFile(join(home, "kept"), "old");
  await chown(join(home, "kept"), ownerUid, 60);
  for (const name of ["new", "kept"]) {
    await new Promise<void>((resolve) => {
      const sent = request({
        socketPath: connection.socketPath,
        method: "PUT",
        path: contentPath(join(home, name), { overwrite: "1" }),
        headers: { "content-length": "1000000" },
      });
      sent.on("error", () => resolve());
      sent.write(Buffer.alloc(300_000), () => sent.destroy());
    });
  }
  const { status } = await rest(connection.socketPath, "PUT", contentPath(join(home, "after")), {
    body: "x",
  });
  t.is(status, 200);
  t.deepEqual((await readdir(home)).sort(), ["after", "kept"]);
  t.is(await readFile(join(home, "kept"), "utf8"), "old");
});

rootTest("names that are not UTF-8 are listed, copied, renamed, read and deleted", async (t) => {
  const ground = await newGround();
  const { home, files } = ground;
  const at = (name: string) => Buffer.concat([Buffer.from(`${home}/`), Buffer.from(name, "latin1")]);
  const names = [
    "caf\xe9",
    "caf\xc3\xa9",
    "back\\x2dslash",
    "back\\xe9slash",
    "a\\x5cb",
    "new\nline",
    "\xff\xfe\\",
    "\\xC3",
  ];
  for (const name of names) {
    writeFileSync(at(name), Buffer.from(name, "latin1"));
    lchownSync(at(name), ownerUid, 60);
  }
  const { entries } = await files.listDirectory({ path: home });
  const spelled = entries.map(({ name }) => name);
  t.deepEqual(
    spelled.toSorted(),
    [
      String.raw`caf\xe9`,
      "café",
      String.raw`back\x2dslash`,
      String.raw`back\x5cxe9slash`,
      String.raw`a\x5cx5cb`,
      "new\nline",
      String.raw`\xff\xfe` + "\\",
      String.raw`\xC3`,
    ].sort(),
  );
  for (const name of spelled) {
    const [content] = (await Array.fromAsync(files.readFile({ path: `${home}/${name}` }))).slice(1);
    await files.copyPath({ from: `${home}/${name}`, to: `${home}/${name}.copy` });
    await files.movePath({ from: `${home}/${name}`, to: `${home}/${name}.moved` });
    const bytes = Buffer.from(content?.content?.data ?? []).toString("latin1");
    t.is(await readFile(at(`${bytes}.copy`), "latin1"), bytes);
    t.is(await readFile(at(`${bytes}.moved`), "latin1"), bytes);
    const { deleted } = await files.deletePaths({
      paths: [`${home}/${name}.copy`, `${home}/${name}.moved`],
    });
    t.is(deleted.length, 2);
  }
  t.deepEqual(await readdir(home), []);
});

rootTest(
  "pages are sorted by bytes, hidden names are included on request, and streams return all",
  async (t) => {
    const ground = await newGround();
    const { home, files } = ground;
    const names = Array.from({ length: 250 }, (_, index) => `f${(index * 7919) % 250}`);
    for (const name of [...names, ".hidden", "Z", "ä"]) await writeFile(join(home, name), "");
    const expected = [...names, ".hidden", "Z", "ä"].sort((a, b) =>
      Buffer.compare(Buffer.from(a), Buffer.from(b)),
    );
    const seen: string[] = [];
    let pageToken = "";
    do {
      const page = await files.listDirectory({ path: home, hidden: true, limit: 60, pageToken });
      t.true(page.entries.length <= 60);
      seen.push(...page.entries.map(({ name }) => name));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    t.deepEqual(seen, expected);
    const streamed = await Array.fromAsync(files.streamDirectory({ path: home, limit: 100 }));
    t.deepEqual(
      streamed.flatMap(({ entries }) => entries.map(({ name }) => name)),
      expected.filter((name) => !name.startsWith(".")),
    );
    t.is(streamed.length, 3);
  },
);

rootTest("FIFOs, devices, sockets and /proc do not block", async (t) => {
  const ground = await newGround();
  const { home, files } = ground;
  execFileSync("mkfifo", ["-m", "666", join(home, "fifo")]);
  execFileSync("mknod", ["-m", "666", join(home, "zero"), "c", "1", "5"]);
  const read = (path: string) => errorOf(Array.fromAsync(files.readFile({ path })));
  const late = sleep(20_000, "late", { ref: false });
  const answers = await Promise.race([
    late,
    Promise.all([
      read(join(home, "fifo")),
      read(join(home, "zero")),
      read("/dev/zero"),
      read("/proc/self/root/etc/hostname"),
    ]),
  ]);
  assert.ok(typeof answers !== "string");
  for (const answer of answers) t.is(answer.code, "FailedPrecondition");
  t.is((await files.statPath({ path: join(home, "fifo") })).type, "fifo");
  t.is((await files.statPath({ path: join(home, "zero") })).type, "char_device");
  t.true((await files.listDirectory({ path: "/proc" })).entries.length > 10);
  const chunks = await Array.fromAsync(files.readFile({ path: "/proc/version" }));
  t.regex(
    Buffer.concat(chunks.map(({ content }) => content?.data ?? Buffer.alloc(0))).toString(),
    /^Linux version/,
  );
  await files.copyPath({ from: join(home, "fifo"), to: join(home, "fifo2") });
  t.true((await lstat(join(home, "fifo2"))).isFIFO());
});

rootTest(
  "reading follows the user's own links and root's, not other users'; writing follows none",
  async (t) => {
    const ground = await newGround();
    const { home, files, connection } = ground;
    const outside = join(ground.daemon.dir, "outside");
    await mkdir(outside);
    await writeFile(join(outside, "file"), "canary");
    for (const path of [outside, join(outside, "file")]) await chown(path, ownerUid, 60);
    for (const [name, uid] of [
      ["own", ownerUid],
      ["roots", 0],
      ["foreign", otherUid],
    ] as const) {
      symlinkSync(outside, join(home, name));
      lchownSync(join(home, name), uid, uid);
      symlinkSync(join(outside, "file"), join(home, `${name}-file`));
      lchownSync(join(home, `${name}-file`), uid, uid);
    }
    for (const name of ["own", "roots"]) {
      t.is((await files.listDirectory({ path: join(home, name) })).entries.length, 1);
      const chunks = await Array.fromAsync(files.readFile({ path: join(home, `${name}-file`) }));
      t.is(Buffer.from(chunks[1]?.content?.data ?? []).toString(), "canary");
    }
    const foreign = join(home, "foreign");
    for (const work of [
      files.listDirectory({ path: foreign }),
      Array.fromAsync(files.readFile({ path: `${foreign}-file` })),
      Array.fromAsync(files.readFile({ path: join(foreign, "file") })),
      files.statPath({ path: join(foreign, "file") }),
      files.createDirectory({ path: join(foreign, "x") }),
      files.createDirectory({ path: join(foreign, "x/y"), parents: true }),
      files.setPathAttributes({ path: join(foreign, "file"), mode: "0777" }),
      files.movePath({ from: join(foreign, "file"), to: join(home, "stolen") }),
      files.copyPath({ from: join(foreign, "file"), to: join(home, "stolen") }),
      files.copyPath({ from: join(home, "own"), to: join(foreign, "x") }),
    ]) {
      t.like(await errorOf(work), { code: "FailedPrecondition", reason: "not_possible" });
    }
    t.like(await errorOf(files.setPathAttributes({ path: join(home, "own-file"), mode: "0777" })), {
      code: "FailedPrecondition",
    });
    const put = await rest(
      connection.socketPath,
      "PUT",
      contentPath(join(home, "own-file"), { overwrite: "1" }),
      {
        body: "x",
      },
    );
    t.is(put.status, 409);
    t.regex(put.body.toString(), /symbolic link: write to what it points to/);
    await files.copyPath({ from: join(home, "foreign"), to: join(home, "link") });
    t.true((await lstat(join(home, "link"))).isSymbolicLink());
    const { deleted } = await files.deletePaths({ paths: [join(home, "own"), join(home, "foreign-file")] });
    t.is(deleted.length, 2);
    t.is(await readFile(join(outside, "file"), "utf8"), "canary");
    t.is((await stat(join(outside, "file"))).mode & 0o777, 0o644);
    for (const path of ["..", `${home}/../x`, "relative", ""]) {
      t.like(await errorOf(files.statPath({ path })), { code: "InvalidArgument" }, path);
    }
  },
);

rootTest("circular links are errors and do not block", async (t) => {
  const { home, files } = await newGround();
  for (const [name, target] of [
    ["one", "two"],
    ["two", "one"],
    ["self", "self/x"],
  ] as const) {
    symlinkSync(target, join(home, name));
    lchownSync(join(home, name), ownerUid, 60);
  }
  for (const name of ["one/x", "self/x"]) {
    const refusal = await errorOf(files.statPath({ path: join(home, name) }));
    t.like(refusal, { code: "FailedPrecondition", reason: "not_possible" }, name);
    t.regex(refusal.message, /symbolic links are not followed/, name);
  }
});

rootTest("only root on the socket may use the daemon's own files", async (t) => {
  const ground = await newGround();
  const { daemon, files } = ground;
  const token = daemon.tokenClient(FileService);
  const tokenFile = join(daemon.dir, "api.token");
  const database = join(daemon.storeDir, "svc.db");
  for (const path of [tokenFile, database]) {
    const all = { code: "PermissionDenied", reason: "protected" };
    for (const work of [
      () => Array.fromAsync(token.readFile({ path })),
      () => token.copyPath({ from: path, to: join(daemon.dir, "stolen") }),
      () => token.movePath({ from: path, to: join(daemon.dir, "stolen") }),
      () => token.setPathAttributes({ path, mode: "0666" }),
      () => token.copyPath({ from: join(daemon.dir, "home"), to: path, overwrite: true }),
      () => token.copyPath({ from: daemon.dir, to: "/tmp/svc-stolen-copy" }),
      () => token.movePath({ from: daemon.dir, to: "/tmp/svc-stolen-move" }),
      () => token.setPathAttributes({ path: daemon.dir, mode: "0777", recursive: true }),
    ]) {
      t.like(await errorOf(work()), all);
    }
    const { deleted, failed } = await token.deletePaths({ paths: [path, daemon.storeDir] });
    t.deepEqual([deleted, failed.length], [[], 2]);
    t.like(await errorOf(Array.fromAsync(files.readFile({ path }))), { reason: "denied" });
    const bytes = await Array.fromAsync(daemon.client(FileService).readFile({ path }));
    t.true((bytes[1]?.content?.data.length ?? 0) > 0);
  }
  const upload = contentPath(tokenFile, { overwrite: "1" });
  const headers = { authorization: `Bearer ${daemon.token}` };
  const answer = await fetch(`http://127.0.0.1:${daemon.port}${upload}`, {
    method: "PUT",
    body: "x",
    headers,
  });
  t.is(answer.status, 403);
  t.true((await token.listDirectory({ path: daemon.storeDir })).entries.length > 0);
  t.is((await token.listDirectory({ path: join(daemon.storeDir, "apps") })).entries.length, 0);
});

rootTest(
  "copies keep modes, times, links, holes and attributes, and replace a tree in one step",
  async (t) => {
    const ground = await newGround();
    const { home, files, as } = ground;
    await as(
      ownerUid,
      "sh",
      "-c",
      `cd ${home}; mkdir -p src/deep/er; printf data > src/f; chmod 0751 src/deep; ln src/f src/hard; ln -s f src/soft
     truncate -s 20M src/sparse; printf end >> src/sparse; truncate -s 1M src/holes; printf end >> src/holes; printf x > src/exec; chmod 4755 src/exec
     head -c 5000000 /dev/urandom > src/big; touch -d '2001-02-03 04:05:06.123456789' src/f src/deep; mkdir src/shut
     touch src/shut/in; chmod 0555 src/shut; chmod 0500 src`,
    );
    execFileSync("setfattr", ["-n", "user.note", "-v", "kept", join(home, "src/f")]);
    await files.copyPath({ from: join(home, "src"), to: join(home, "dst") });
    const look = (dir: string) =>
      as(
        ownerUid,
        "sh",
        "-c",
        `cd ${home}/${dir} && find . -printf '%p %y %m %T@ %l %n %s\\n' | sort && cat f big | md5sum`,
      );
    t.is(await look("dst"), await look("src"));
    const sparse = await stat(join(home, "dst/sparse"));
    t.true(sparse.blocks * 512 < 1_000_000);
    t.true((await stat(join(home, "dst/holes"))).blocks * 512 < 500_000);
    t.is((await stat(join(home, "dst/f"))).ino, (await stat(join(home, "dst/hard"))).ino);
    t.regex(execFileSync("getfattr", ["-d", join(home, "dst/f")], { encoding: "utf8" }), /kept/);
    t.like(await errorOf(files.copyPath({ from: join(home, "src"), to: join(home, "dst") })), {
      code: "AlreadyExists",
    });
    t.like(await errorOf(files.copyPath({ from: home, to: join(home, "src/in") })), {
      code: "InvalidArgument",
    });
    await as(ownerUid, "chmod", "700", join(home, "dst"), join(home, "src"));
    await as(ownerUid, "sh", "-c", `mkdir ${home}/small; printf new > ${home}/small/only`);
    await files.copyPath({ from: join(home, "small"), to: join(home, "dst"), overwrite: true });
    t.deepEqual(await readdir(join(home, "dst")), ["only"]);
    await files.movePath({ from: join(home, "src"), to: join(home, "dst"), overwrite: true });
    t.true((await readdir(join(home, "dst"))).includes("sparse"));
    t.deepEqual((await readdir(home)).sort(), ["dst", "small"]);
    await link(join(home, "small/only"), join(home, "small/also"));
  },
);

rootTest("a move to another file system is a copy, then the original goes", async (t) => {
  const ground = await newGround();
  const { home, files, as } = ground;
  const far = await readFile("/proc/mounts", "utf8");
  t.regex(far, / \/dev\/shm tmpfs/);
  const target = `/dev/shm/svc-files-${process.pid}`;
  await as(
    ownerUid,
    "sh",
    "-c",
    `mkdir -p ${home}/tree/sub; printf data > ${home}/tree/sub/f; chmod 0640 ${home}/tree/sub/f`,
  );
  try {
    const moved = await files.movePath({ from: join(home, "tree"), to: target });
    t.is(moved.type, "directory");
    t.deepEqual(await readdir(home), []);
    const { mode, uid } = await stat(join(target, "sub/f"));
    t.deepEqual([mode & 0o777, uid], [0o640, ownerUid]);
  } finally {
    execFileSync("rm", ["-rf", target]);
  }
});

rootTest("a deletion continues past undeletable entries, and reports each", async (t) => {
  const ground = await newGround();
  const { home, files, as } = ground;
  await as(
    ownerUid,
    "sh",
    "-c",
    `cd ${home}; mkdir -p t/a t/b/c t/d; touch t/a/1 t/b/c/2 t/d/3 t/4; chmod 555 t/a t/b/c`,
  );
  const { deleted, failed, failedCount } = await files.deletePaths({ paths: [join(home, "t")] });
  t.deepEqual(deleted, []);
  t.deepEqual(failed.map(({ path }) => path).sort(), [`${home}/t/a/1`, `${home}/t/b/c/2`]);
  t.is(failedCount, 2n);
  t.deepEqual(await readdir(join(home, "t")), ["a", "b"]);
});

rootTest("a deletion reports a thousand undeletable entries, and the number of all", async (t) => {
  const { home, files, as } = await newGround();
  await as(ownerUid, "sh", "-c", `mkdir ${home}/t; cd ${home}/t; seq 1100 | xargs touch; chmod 555 .`);
  const { deleted, failed, failedCount } = await files.deletePaths({ paths: [join(home, "t")] });
  t.deepEqual([deleted.length, failed.length, failedCount], [0, 1000, 1100n]);
});

rootTest("a set-user-ID file loses its bit when another user copies it", async (t) => {
  const { home, files } = await newGround();
  const path = join(home, "tool");
  await writeFile(path, "x");
  // Small ones and large ones, single and in a directory.
  await mkdir(join(home, "dir"), { mode: 0o755 });
  await writeFile(join(home, "dir/large"), Buffer.alloc(3 << 20));
  for (const each of [path, join(home, "dir/large")]) await chmod(each, 0o6755);
  await files.copyPath({ from: path, to: join(home, "mine") });
  await files.copyPath({ from: join(home, "dir"), to: join(home, "also") });
  for (const name of ["mine", "also/large"]) {
    const { uid, mode } = await stat(join(home, name));
    t.deepEqual([uid, mode & 0o7777], [ownerUid, 0o755], name);
  }
});

rootTest("nothing can replace its own parent or itself", async (t) => {
  const { home, files, as } = await newGround();
  await as(ownerUid, "sh", "-c", `mkdir -p ${home}/a/b; echo kept > ${home}/a/f; echo in > ${home}/a/b/f`);
  for (const [from, to] of [
    ["a/b", "a"],
    ["a/f", "a/f"],
  ] as const) {
    const pair = { from: join(home, from), to: join(home, to), overwrite: true };
    t.like(await errorOf(files.movePath(pair)), { code: "InvalidArgument" }, `move ${from}`);
    t.like(await errorOf(files.copyPath(pair)), { code: "InvalidArgument" }, `copy ${from}`);
  }
  t.is(
    await as(ownerUid, "sh", "-c", `cd ${home}; find . | sort | xargs; cat a/f a/b/f`),
    ". ./a ./a/b ./a/b/f ./a/f\nkept\nin\n",
  );
});

rootTest("a detached move or archive responds with the type of the entry that it creates", async (t) => {
  const { home, files } = await newGround();
  await mkdir(join(home, "detached"));
  const moved = await files.movePath({
    ...{ from: join(home, "detached"), to: join(home, "moved") },
    detach: true,
  });
  t.like(moved, { type: "directory", detached: { kind: "move_files" } });
  const packed = await files.createArchive({
    ...{ paths: [join(home, "own")], target: join(home, "own.tar") },
    detach: true,
  });
  t.like(packed, { type: "file", detached: { kind: "create_archive" } });
  const missing = { from: join(home, "missing"), to: join(home, "x"), detach: true };
  t.like(await errorOf(files.movePath(missing)), { reason: "not_found" });
});

rootTest("the root directory cannot be deleted or changed recursively", async (t) => {
  const { files } = await newGround();
  for (const path of ["/", "//"]) {
    const change = await errorOf(files.setPathAttributes({ path, mode: "0755", recursive: true }));
    t.is(change.reason, "invalid_request", path);
    const { deleted, failed } = await files.deletePaths({ paths: [path] });
    t.deepEqual(deleted, [], path);
    t.regex(failed[0]?.error ?? "", /cannot be the root directory/);
  }
});

rootTest("recursive modes and owners do not change links and their targets", async (t) => {
  const ground = await newGround();
  const { home, files, daemon } = ground;
  const canary = join(daemon.dir, "canary");
  await writeFile(canary, "");
  await chmod(canary, 0o600);
  await mkdir(join(home, "t/sub"), { recursive: true });
  await writeFile(join(home, "t/sub/f"), "");
  await symlink(canary, join(home, "t/link"));
  await symlink(daemon.dir, join(home, "t/dir"));
  const root = daemon.client(FileService);
  await root.setPathAttributes({ path: join(home, "t"), owner: "games", group: "games", recursive: true });
  for (const path of ["t", "t/sub", "t/sub/f", "t/link", "t/dir"])
    t.is((await lstat(join(home, path))).uid, ownerUid, path);
  await files.setPathAttributes({ path: join(home, "t"), mode: "0700", recursive: true });
  t.is((await stat(join(home, "t/sub/f"))).mode & 0o7777, 0o700);
  await files.setPathAttributes({ path: join(home, "t"), mode: "0", recursive: true }).catch(() => undefined);
  await files.setPathAttributes({ path: join(home, "t"), mode: "0000", recursive: true });
  t.is((await stat(join(home, "t"))).mode & 0o7777, 0);
  t.is((await stat(join(home, "t/sub/f"))).mode & 0o7777, 0);
  await files.setPathAttributes({ path: join(home, "t"), mode: "0755", recursive: true });
  t.is((await stat(join(home, "t/sub/f"))).mode & 0o7777, 0o755);
  const { uid, mode } = await stat(canary);
  t.deepEqual([uid, mode & 0o777], [0, 0o600]);
  t.like(await errorOf(files.setPathAttributes({ path: home, owner: "no-such-user" })), {
    code: "InvalidArgument",
  });
});

rootTest("an unreadable directory is skipped, or removed if it is empty", async (t) => {
  const ground = await newGround();
  const { home, files, as } = ground;
  // It can be entered but not read: entries with the same names beside it are not mistaken for its content.
  const script = `cd ${home}; mkdir -p t/a t/m t/z; echo a > t/a/x; echo m > t/m/b; echo b > t/b; chmod 300 t/m; mkdir t/n; echo n > t/n/x; chmod 600 t/n`;
  await as(ownerUid, "sh", "-c", script);
  await mkdir(join(home, "t/empty"), { mode: 0o700 });
  const { deleted, failed, failedCount } = await files.deletePaths({ paths: [join(home, "t")] });
  t.deepEqual(deleted, []);
  t.deepEqual(failed.map(({ path }) => path).sort(), [join(home, "t/m"), join(home, "t/n/x")]);
  t.is(failedCount, 2n);
  t.deepEqual((await readdir(join(home, "t"))).sort(), ["m", "n"]);
  t.is(await readFile(join(home, "t/m/b"), "utf8"), "m\n");
});

rootTest("times outside of a timestamp's range are returned as the nearest one", async (t) => {
  const ground = await newGround();
  // A file system in memory stores times with full range.
  await using memory = await mkdtempDisposable("/dev/shm/svc-files-");
  await chmod(memory.path, 0o755);
  for (const [name, seconds] of Object.entries({ far: "99999999999999", old: "-99999999999999" }))
    await promisify(execFile)("touch", ["-d", `@${seconds}`, join(memory.path, name)]);
  const { status, body } = await rest(
    ground.connection.socketPath,
    "GET",
    `/v1/files?path=${encodeURIComponent(memory.path)}`,
  );
  t.is(status, 200, body.toString());
  const { entries } = JSON.parse(body.toString()) as { entries: { name: string; modified_at: string }[] };
  t.deepEqual(
    entries.map(({ modified_at }) => modified_at),
    ["9999-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z"],
  );
});
