/** Names that file managers stumble over, through the command line, REST, archives, backups and clones. */
import { execFile } from "node:child_process";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { FileService } from "../../gen/svc/v1/file_pb.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { freePort, writePackage } from "../support/packages.ts";
import { main } from "../support/svc-main.ts";

const sharedNode = sharedDaemon();

/** The bytes of each name (latin1), and how svc spells it. */
const names = [
  ...["100% sure.txt", "%2e%2e%2fetc", "a?b.txt", "#hash", "plus+plus (29).jar", "semi;colon&amp.txt"],
  ...["quote'\"`.txt", "-rf", " leading", "trailing ", "tab\there", "new\nline", "back\\slash", "colon:name"],
  ...["...", "CON", "[brackets]{braces}*.txt", "~tilde", "$HOME", "x".repeat(255)],
  ...["grüße.txt", "gru\u0308ße.txt", "名前(空).zip", "📦.txt", "\u202egpj.exe"].map((name) =>
    Buffer.from(name).toString("latin1"),
  ),
  ...["latin1-\xe9.txt", "literal-\\xe9.txt"],
].map((bytes) => ({ bytes, spelled: spellingOf(bytes) }));

function spellingOf(bytes: string): string {
  const text = Buffer.from(bytes.replace("\\xe9", "\\x5cxe9"), "latin1").toString();
  return text.replace("\ufffd", "\\xe9");
}

/** An app whose data directory has a file of each name, below a directory with an odd name of its own. */
async function newApp() {
  const daemon = await sharedNode();
  const dir = join(daemon.dir, "package");
  await writePackage(dir, await freePort());
  const { directory } = await daemon.client(AppService).installApp({ spec: dir });
  const data = join(directory, "data");
  const odd = join(data, "100%", "#dir?");
  await mkdir(odd, { recursive: true });
  for (const { bytes } of names) await writeFile(pathOf(odd, bytes), bytes, "latin1");
  return { daemon, data, odd };
}

function pathOf(dir: string, bytes: string): Buffer {
  return Buffer.concat([Buffer.from(`${dir}/`), Buffer.from(bytes, "latin1")]);
}

/** The bytes of the names in a directory of `newApp`, each with the right content. */
async function contentOf(dir: string): Promise<string[]> {
  const found = (await readdir(dir, { encoding: "buffer" })).map((name) => name.toString("latin1"));
  for (const name of found) {
    const content = await readFile(pathOf(dir, name), "latin1");
    if (content !== name) throw new Error(`${name} has the content ${content}`);
  }
  return found.sort();
}

const all = names.map(({ bytes }) => bytes).sort();

test("svc file lists, reads, renames, copies and removes files with odd names", async (t) => {
  const { daemon, odd } = await newApp();
  const svc = (...args: string[]) => runSvc(["file", ...args, "--socket", daemon.socketPath]);
  const listed = (await svc("ls", "-a", "web:data/100%/#dir?", "--json")).stdout.trim().split("\n");
  t.deepEqual(
    listed.map((line) => (JSON.parse(line) as { name: string }).name).sort(),
    names.map(({ spelled }) => spelled).sort(),
  );
  for (const { bytes, spelled } of names) {
    const path = `web:data/100%/#dir?/${spelled}`;
    const other = "web:data/100%/other";
    const { stdout } = await svc("cat", path);
    t.is(stdout, Buffer.from(bytes, "latin1").toString(), spelled);
    for (const args of [
      ["stat", path],
      ["mv", path, other],
      ["cp", other, path],
      ["rm", "--yes", other],
    ]) {
      const { exitCode, stderr } = await svc(...args);
      t.is(exitCode, 0, `${args.join(" ")}: ${stderr}`);
    }
  }
  t.deepEqual(await contentOf(odd), all);
});

test("svc file get writes the bytes of a name, and put says how to send a name that is not UTF-8", async (t) => {
  const { daemon } = await newApp();
  const cwd = join(daemon.dir, "here");
  await mkdir(cwd);
  const latin1 = String.raw`web:data/100%/#dir?/latin1-\xe9.txt`;
  const args = [main, "file", "get", latin1, "--socket", daemon.socketPath];
  await promisify(execFile)(process.execPath, args, { cwd });
  t.deepEqual(await contentOf(cwd), ["latin1-\xe9.txt"]);
  const put = ["file", "put", "latin1-\ufffd.txt", latin1, "--socket", daemon.socketPath];
  const { exitCode, stderr } = await runSvc(put);
  t.is(exitCode, 2);
  t.regex(stderr, /the name is not UTF-8; send the content as standard input: svc file put - PATH < FILE/);
});

test("REST reads and writes files with odd names", async (t) => {
  const { daemon, odd, data } = await newApp();
  const request = (method: string, path: string, body?: string) =>
    fetch(`http://127.0.0.1:${daemon.port}/v1/files/content?path=${encodeURIComponent(path)}`, {
      method,
      headers: { authorization: `Bearer ${daemon.token}` },
      ...(body !== undefined && { body }),
    });
  await mkdir(join(data, "sent"));
  for (const { bytes, spelled } of names) {
    const content = Buffer.from(await (await request("GET", `${odd}/${spelled}`)).arrayBuffer());
    t.is(content.toString("latin1"), bytes);
    t.is((await request("PUT", `${data}/sent/${spelled}`, spelled)).status, 200, spelled);
    t.is(await readFile(pathOf(`${data}/sent`, bytes), "utf8"), spelled);
  }
});

test("archives, backups, restores and clones keep odd names, and a zip names what it cannot hold", async (t) => {
  const { daemon, data, odd } = await newApp();
  const files = daemon.client(FileService);
  for (const format of ["tar.gz", "tar.zst"]) {
    const archive = join(data, `odd.${format}`);
    await files.createArchive({ paths: [odd], target: archive });
    await files.extractArchive({ path: archive, target: join(data, format) });
    t.deepEqual(await contentOf(join(data, format, "#dir?")), all, format);
  }
  await t.throwsAsync(files.createArchive({ paths: [odd], target: join(data, "odd.zip") }), {
    message: /has a name that a zip cannot hold: a tar can/,
  });
  const backups = daemon.client(BackupService);
  const { results } = await backups.createBackup({ appId: "web" });
  const { storage = "", name = "" } = results[0] ?? {};
  await backups.restoreBackup({ appId: "web", storage, name, asNew: true, newName: "restored" });
  const apps = daemon.client(AppService);
  await apps.cloneApp({ id: "web", name: "cloned" });
  for (const id of ["restored", "cloned"]) {
    const { directory } = await apps.getApp({ id });
    t.deepEqual(await contentOf(join(directory, "data/100%/#dir?")), all, id);
    await apps.removeApp({ id });
    await t.throwsAsync(readdir(directory), { code: "ENOENT" });
  }
});
