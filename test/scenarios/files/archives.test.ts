/** Large files over REST, and archives that are created and unpacked as a user, including hostile ones. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { lstat, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { testMs } from "../../files/support/deaths.ts";
import { type Ground, openGround, ownerUid } from "../../files/support/ground.ts";
import { hostileArchives } from "../../files/support/hostile-archives.ts";
import { sharedGround } from "../../files/support/shared-ground.ts";
import { isRoot, protocols } from "../../support/daemon.ts";
import { errorOf } from "../../support/errors.ts";
import { eventually } from "../../support/eventually.ts";
import { keepInMemory } from "../../support/in-memory.ts";

// Archives that are created and unpacked as a user, including hostile ones.

keepInMemory();

const rootTest = isRoot ? test : test.skip;
const newGround = sharedGround();
const formats = ["tar.gz", "tar.zst", "zip"] as const;

const treeScript = `
long="tree/$(printf 'l%.0s' $(seq 120))"; mkdir -p tree/sub/empty tree/shut "$long"
echo one > tree/one; : > tree/nothing; head -c 3000000 /dev/urandom > tree/sub/big
chmod 0640 tree/one; chmod 0755 tree/sub/big; ln -s one tree/link; ln -s /etc/passwd tree/out
ln tree/one tree/sub/again; echo long > "$long/$(printf 'n%.0s' $(seq 200))"; echo nl > "tree/a
b"
mkfifo tree/fifo; echo in > tree/shut/in; chmod 0500 tree/shut
touch -h -d 2020-02-03T04:05:06Z tree/one tree/sub/big tree/sub tree/link`;

/** All attributes of a tree that an archive stores. */
async function picture({ as }: Ground, dir: string, { links = false } = {}): Promise<string> {
  const format = links ? "%P|%y|%m|%s|%Ts|%l|%n\\n" : "%P|%y|%m|%l|%Ts\\n";
  const script = `cd ${dir} && find . -mindepth 1 ! -type p ! -type d -printf '${format}' -o -type d -mindepth 1 -printf '%P|d|%m\\n' | sort; find . -type f -exec sha256sum {} + | sort`;
  return as(ownerUid, "sh", "-c", script);
}

for (const [index, protocol] of protocols.entries()) {
  const format = formats[index] ?? "zip";
  rootTest(`a tree survives ${format} unchanged (${protocol})`, async (t) => {
    const ground = await newGround();
    const { home, connection, as } = ground;
    const files = connection.client(FileService, protocol);
    await as(ownerUid, "sh", "-c", `cd ${home}; ${treeScript}`);
    await as(ownerUid, "sh", "-c", `cd ${home}; echo two > two`);
    const target = `${home}/kept.${format}`;
    const paths = [`${home}/tree`, `${home}/two`];
    const made = await files.createArchive({ paths, target });
    t.like(made, { name: `kept.${format}`, type: "file", mode: "0644", owner: "games" });
    t.true(made.sizeBytes > 3_000_000n);
    t.like(await errorOf(files.createArchive({ paths, target })), { reason: "already_exists" });
    const out = await files.extractArchive({ path: target, target: `${home}/out` });
    // All except the FIFO.
    t.is(out.entries, 15n);
    t.like(out.entry, { name: "out", type: "directory", mode: "0755", owner: "games" });
    const links = format !== "zip";
    t.is(
      await picture(ground, `${home}/out/tree`, { links }),
      await picture(ground, `${home}/tree`, { links }),
    );
    t.is(await readFile(`${home}/out/two`, "utf8"), "two\n");
    // Into an existing directory: existing entries conflict with the archive's names or are replaced.
    await as(ownerUid, "sh", "-c", `cd ${home}/out; echo mine > mine; echo old > two; chmod u+w tree/shut`);
    const again = { path: target, target: `${home}/out` };
    t.like(await errorOf(files.extractArchive(again)), { code: "AlreadyExists", reason: "already_exists" });
    t.is(await readFile(`${home}/out/two`, "utf8"), "old\n");
    await files.extractArchive({ ...again, overwrite: true });
    t.is(await readFile(`${home}/out/two`, "utf8"), "two\n");
    t.is(await readFile(`${home}/out/mine`, "utf8"), "mine\n");
    t.deepEqual((await readdir(`${home}/out`)).sort(), ["mine", "tree", "two"]);
    t.deepEqual((await readdir(home)).sort(), [`kept.${format}`, "out", "tree", "two"]);
  });
}

rootTest("tar(1) and Python read created archives, and theirs can be unpacked", async (t) => {
  const ground = await newGround();
  const { home, files, as } = ground;
  await as(
    ownerUid,
    "sh",
    "-c",
    `cd ${home}; ${treeScript}; rm tree/fifo; printf x > "$(printf 'tree/caf\\351')"`,
  );
  const before = await picture(ground, `${home}/tree`, { links: true });
  for (const format of ["tar.gz", "tar.zst"]) {
    const target = `${home}/ours.${format}`;
    await files.createArchive({ paths: [`${home}/tree`], target });
    await as(ownerUid, "sh", "-c", `mkdir ${home}/got; tar --same-permissions -xf ${target} -C ${home}/got`);
    t.is(await picture(ground, `${home}/got/tree`, { links: true }), before, format);
    await as(ownerUid, "sh", "-c", `chmod -R u+w ${home}/got; rm -r ${home}/got`);
  }
  for (const kind of ["gnu", "pax", "oldgnu"]) {
    const archive = `${home}/${kind}.tgz`;
    await as(ownerUid, "tar", "-C", home, `--format=${kind}`, "-czf", archive, "./tree");
    await files.extractArchive({ path: archive, target: `${home}/from-${kind}` });
    t.is(await picture(ground, `${home}/from-${kind}/tree`, { links: true }), before, kind);
  }
  // A zip rejects names that are not UTF-8, and reports it.
  const refusal = await errorOf(files.createArchive({ paths: [`${home}/tree`], target: `${home}/ours.zip` }));
  t.like(refusal, { reason: "not_possible" });
  t.regex(refusal.message, /tree\/caf\\\\xe9.*a tar can/);
  await as(ownerUid, "sh", "-c", `rm ${home}/tree/caf*`);
  await files.createArchive({ paths: [`${home}/tree`], target: `${home}/ours.zip` });
  const zipfile = (...args: string[]) =>
    execFileSync("python3", ["-m", "zipfile", ...args], { encoding: "utf8" });
  t.regex(zipfile("-t", `${home}/ours.zip`), /Done testing/);
  zipfile("-c", `${home}/theirs.zip`, `${home}/tree/sub/`);
  await files.extractArchive({ path: `${home}/theirs.zip`, target: `${home}/from-zip` });
  t.true((await readFile(`${home}/from-zip/sub/big`)).equals(await readFile(`${home}/tree/sub/big`)));
});

const timesScript = `
mkdir -p dated/shared; echo old > dated/old; ln -s old dated/link; echo new > dated/new; : > dated/future
touch -d '1969-12-31 23:59:58.75 UTC' dated/old; touch -h -d '1901-12-14 00:00:00.1 UTC' dated/link
touch -d '2026-01-02 03:04:05.123456789 UTC' dated/new; touch -d '2100-01-01 00:00:00.5 UTC' dated/future
chmod 2750 dated/shared; chmod 3777 dated; touch -d '1969-07-20 20:17:40.5 UTC' dated/shared dated`;

rootTest(
  "a tar retains times before 1970 and fractions of seconds, and set-group-ID directories",
  async (t) => {
    const ground = await newGround();
    const { home, files, as, daemon } = ground;
    await as(ownerUid, "sh", "-c", `cd ${home}; ${timesScript}`);
    const exact = (dir: string): Promise<string> =>
      as(ownerUid, "sh", "-c", `cd ${dir}; find . -mindepth 1 -printf '%P %m %T@\\n' | sort`);
    const before = await exact(home);
    // find prints the whole seconds rounded down, before a fraction that is never negative.
    t.regex(before, /^dated 3777 -14182940\.5000000000\n[^]*dated\/old 644 -2\.7500000000\n/);
    await files.createArchive({ paths: [`${home}/dated`], target: `${home}/ours.tar.gz` });
    await as(
      ownerUid,
      "sh",
      "-c",
      `cd ${home}; tar --format=pax -czf theirs.tgz dated; mkdir tar; tar -xpzf ours.tar.gz -C tar`,
    );
    t.is(await exact(`${home}/tar`), before, "tar(1) reads it");
    for (const name of ["ours.tar.gz", "theirs.tgz"]) {
      await files.extractArchive({ path: `${home}/${name}`, target: `${home}/from-${name}` });
      t.is(await exact(`${home}/from-${name}`), before, name);
    }
    const roots = join(daemon.dir, "roots");
    await daemon.client(FileService).extractArchive({ path: `${home}/ours.tar.gz`, target: roots });
    t.is(
      (await lstat(join(roots, "dated/shared"))).mode & 0o7777,
      0o750,
      "without root's group for new files",
    );
    await files.copyPath({ from: `${home}/dated`, to: `${home}/copy` });
    t.is(await exact(`${home}/copy`), await exact(`${home}/dated`));
  },
);

rootTest("a zip has at most 10,000 entries; a tar has no limit", async (t) => {
  t.timeout(600_000);
  const ground = await newGround();
  const { home, files, as } = ground;
  await as(ownerUid, "sh", "-c", `mkdir ${home}/tree; cd ${home}/tree; seq 10000 | xargs touch`);
  const pack = (target: string) =>
    files.createArchive({ paths: [`${home}/tree`], target: `${home}/${target}` }, { timeoutMs: 300_000 });
  const refusal = await errorOf(pack("a.zip"));
  t.like(refusal, { code: "ResourceExhausted", reason: "too_many" });
  t.regex(refusal.message, /a\.zip" would have more than 10000 entries.*tar\.gz or a tar\.zst/);
  t.deepEqual(await readdir(home), ["tree"]);
  await pack("a.tar.gz");
  await rm(join(home, "tree/1"));
  await pack("a.zip");
  const listed = execFileSync("python3", ["-m", "zipfile", "-l", `${home}/a.zip`], { encoding: "utf8" });
  t.is(listed.trimEnd().split("\n").length, 1 + 10_000);
});

rootTest(
  "entries that the kernel denies are not packed, and an archive is not unpacked if the kernel denies it",
  async (t) => {
    const ground = await newGround();
    const { home, files, daemon, as } = ground;
    await as(ownerUid, "sh", "-c", `mkdir ${home}/tree; echo x > ${home}/tree/x`);
    for (const content of ["secret", ""]) {
      await writeFile(join(home, "tree/secret"), content, { mode: 0o600 });
      for (const format of formats) {
        const target = `${home}/a.${format}`;
        const denied = await errorOf(files.createArchive({ paths: [`${home}/tree`], target }));
        t.like(denied, { code: "PermissionDenied", reason: "denied" }, format);
        t.regex(denied.message, /tree\/secret.*permission denied/, format);
      }
      t.deepEqual(await readdir(home), ["tree"]);
      await rm(join(home, "tree/secret"));
    }
    await files.createArchive({ paths: [`${home}/tree`], target: `${home}/a.zip` });
    const theirs = join(daemon.dir, "theirs");
    await mkdir(theirs, { mode: 0o755 });
    const into = await errorOf(files.extractArchive({ path: `${home}/a.zip`, target: theirs }));
    t.like(into, { code: "PermissionDenied", reason: "denied" });
    t.regex(into.message, /theirs.*permission denied/);
    t.deepEqual(await readdir(theirs), []);
    for (const path of ["/etc/shadow", "/dev/zero", `${home}/tree`, `${home}/nothing.zip`]) {
      t.truthy(await errorOf(files.extractArchive({ path, target: `${home}/b`, format: "zip" })), path);
    }
    const twice = { paths: [`${home}/tree`, `${theirs}/tree`], target: `${home}/b.zip` };
    t.like(await errorOf(files.createArchive(twice)), { reason: "invalid_request" });
    t.like(await errorOf(files.createArchive({ ...twice, target: `${home}/b.rar` })), {
      reason: "invalid_request",
    });
  },
);

rootTest("hostile archives are rejected as a whole, for every user", async (t) => {
  const ground = await newGround();
  const { home, files, daemon, as } = ground;
  const made = join(daemon.dir, "hostile");
  await mkdir(made, { mode: 0o755 });
  const canary = join(daemon.dir, "canary");
  await writeFile(canary, "canary", { mode: 0o666 });
  const names = hostileArchives(made, canary);
  t.true(names.length > 25);
  // Beside a directory whose name starts with the same letters.
  await as(ownerUid, "mkdir", `${home}/dest-evil`, `${home}/there`);
  const root = daemon.client(FileService);
  for (const name of names) {
    for (const [who, caller] of [
      ["owner", files],
      ["root", root],
    ] as const) {
      const place = `${who}: ${name}`;
      for (const target of [`${home}/dest`, `${home}/there`]) {
        const error = await errorOf(
          caller.extractArchive({ path: join(made, name), target, maxEntries: 1000 }),
        );
        const reason = name.startsWith("limit-") ? "too_many" : "archive_refused";
        t.like(error, { reason }, place);
        t.true(error.message.includes(JSON.stringify(join(made, name))), place);
      }
      t.deepEqual((await readdir(home)).sort(), ["dest-evil", "there"], place);
      t.deepEqual(await readdir(`${home}/there`), [], place);
      t.deepEqual(await readdir(`${home}/dest-evil`), [], place);
    }
  }
  t.is(await readFile(canary, "utf8"), "canary");
  t.is((await lstat(canary)).nlink, 1);
  t.is((await lstat(canary)).mode & 0o7777, 0o644);
});

rootTest(
  "odd names remain names, and an archive's links are not followed while it is unpacked",
  async (t) => {
    const ground = await newGround();
    const { home, files } = ground;
    const script = `
import io, tarfile
archive = tarfile.open("${home}/odd.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1")
for name in ["a\\nb", "caf\\xe9", "back\\\\slash", " ", "-rf", "./x/./y", "x//z"]:
    entry = tarfile.TarInfo(name); entry.size = 1; archive.addfile(entry, io.BytesIO(b"x"))
entry = tarfile.TarInfo("up"); entry.type = tarfile.SYMTYPE; entry.linkname = "../../.."; archive.addfile(entry)
archive.close()`;
    execFileSync("python3", ["-c", script]);
    await files.extractArchive({ path: `${home}/odd.tar`, target: `${home}/odd` });
    const { entries } = await files.listDirectory({ path: `${home}/odd` });
    const names = [" ", "-rf", "a\nb", "back\\slash", "caf\\xe9", "up", "x"];
    t.deepEqual(
      entries.map(({ name }) => name),
      names,
    );
    t.deepEqual((await readdir(`${home}/odd/x`)).sort(), ["y", "z"]);
  },
);

rootTest("a long name whose header prefix ends with a slash is a file", async (t) => {
  const { home, files } = await newGround();
  const dir = "d".repeat(99);
  for (const format of ["GNU", "PAX"]) {
    const script = `
import io, tarfile
archive = tarfile.open("${home}/${format}.tar", "w", format=tarfile.${format}_FORMAT)
for name, content in [("full", b"x"), ("empty", b"")]:
    entry = tarfile.TarInfo("${dir}/" + name); entry.size = len(content); archive.addfile(entry, io.BytesIO(content))
archive.close()`;
    execFileSync("python3", ["-c", script]);
    await files.extractArchive({ path: `${home}/${format}.tar`, target: `${home}/${format}` });
    t.is(await readFile(`${home}/${format}/${dir}/full`, "utf8"), "x", format);
    t.true((await lstat(`${home}/${format}/${dir}/empty`)).isFile(), format);
  }
});

rootTest("an archive may be of any size if its contents are within the limits", async (t) => {
  const ground = await newGround();
  const { home, files, as } = ground;
  await as(ownerUid, "sh", "-c", `head -c 60000000 /dev/zero | tr "\\0" a > ${home}/same`);
  await files.createArchive({ paths: [`${home}/same`], target: `${home}/z.tar.zst` });
  const unpack = { path: `${home}/z.tar.zst`, target: `${home}/out` };
  const refusal = await errorOf(files.extractArchive(unpack));
  t.like(refusal, { code: "ResourceExhausted", reason: "too_many" });
  t.regex(refusal.message, /more than 200 times its size/);
  const bytes = await errorOf(files.extractArchive({ ...unpack, maxRatio: 100_000, maxBytes: 1_000_000n }));
  t.regex(bytes.message, /more than 1000000 bytes/);
  t.deepEqual((await readdir(home)).sort(), ["same", "z.tar.zst"]);
  t.is((await files.extractArchive({ ...unpack, maxRatio: 100_000 })).extractedBytes, 60_000_000n);
});

rootTest("a canceled unpacking leaves nothing, and reports its progress", async (t) => {
  const ground = await newGround();
  const { home, connection, as } = ground;
  const files = connection.client(FileService, "grpc");
  await as(
    ownerUid,
    "sh",
    "-c",
    `mkdir ${home}/t; cd ${home}/t; for n in 1 2 3 4; do head -c 50000000 /dev/urandom > $n; done`,
  );
  const packing = { paths: [`${home}/t`], target: `${home}/t.tar.zst` };
  for (const [what, events] of [
    ["pack", (options: { signal?: AbortSignal }) => files.createArchiveStream(packing, options)],
    [
      "unpack",
      (options: { signal?: AbortSignal }) =>
        files.extractArchiveStream({ path: packing.target, target: `${home}/u` }, options),
    ],
  ] as const) {
    const stop = new AbortController();
    const cut = await errorOf(
      (async () => {
        for await (const { event } of events({ signal: stop.signal })) {
          if (event.case === "progress" && Number(event.value.doneBytes ?? 0n) > 0) stop.abort();
        }
      })(),
    );
    t.is(cut.code, "Canceled", what);
    const before = what === "pack" ? ["t"] : ["t", "t.tar.zst"];
    await eventually(async () => assert.deepEqual((await readdir(home)).sort(), before), 30_000);
    const seen = [];
    for await (const { event } of events({})) seen.push(event.case);
    t.is(seen.at(-1), "result", what);
    t.true(seen.includes("progress"), what);
  }
});

rootTest("a token cannot pack the daemon's own files or unpack over them", async (t) => {
  const ground = await newGround();
  const { daemon, home, as } = ground;
  const files = daemon.tokenClient(FileService);
  await as(ownerUid, "sh", "-c", `mkdir ${home}/apps; echo x > ${home}/apps/x; echo y > ${home}/y`);
  await files.createArchive({ paths: [`${home}/y`], target: `${home}/y.tar.gz` });
  const own = { code: "PermissionDenied", reason: "protected" };
  const { storeDir } = daemon;
  t.like(await errorOf(files.createArchive({ paths: [storeDir], target: `${home}/s.zip` })), own);
  t.like(await errorOf(files.extractArchive({ path: `${home}/y.tar.gz`, target: storeDir })), own);
  t.like(await errorOf(files.createArchive({ paths: [`${home}/y`], target: join(storeDir, "y.zip") })), own);
  t.deepEqual(
    (await readdir(storeDir)).filter((name) => name.startsWith(".svc-")),
    [],
  );
  // Entries with their names are rejected in their directory.
  for (const name of ["api.token", "store"]) {
    const made = `${home}/${name}.tar.gz`;
    await as(ownerUid, "sh", "-c", `cd ${home}; mkdir ${name}; tar -czf ${made} ${name}`);
    const over = { path: made, target: daemon.dir, overwrite: true };
    t.like(await errorOf(files.extractArchive(over)), own, name);
  }
  t.is((await readFile(join(daemon.dir, "api.token"), "utf8")).trim(), daemon.token);
});

// Large files over REST, whose memory is freed as soon as it has been sent.

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
/** Maximum attempts: a busy host also delays a process, but not each time. */
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
