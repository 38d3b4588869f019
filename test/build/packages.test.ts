/** The packages of a build: licenses and native code of others, the single executable's files, and the man page. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
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
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import { commandManual, commandTree } from "../../src/build/manual.ts";
import { type Packed, ownProgramDir, unpackOnce } from "../../src/build/executable/unpack.ts";
import { manPage, text } from "../../src/build/man-page.ts";
import { bringNativePackage, nativePackageDir } from "../../src/build/native-package.ts";
import { thirdPartyFiles, writeThirdPartyFiles } from "../../src/build/third-party.ts";
import type { CommandTree } from "../../src/cli/completion/command-tree.ts";
import { bundledPrograms } from "../../src/daemon/programs.ts";
import { runSvc } from "../cli/support/run-svc.ts";
import { readPage } from "../support/docs.ts";

// AVA accepts no test after an await: these come first.
const page = manPage({ manual: await commandManual(), version: "1.2.3", date: "2026-01-01" });
const reference = await readPage("docs/reference/commands.md");
const tree = await commandTree();

// Notices of the packages in a bundle: every license in full, and a bill of materials.

const product = { name: "product", version: "9.8.7", license: "Apache-2.0" };
const packageOf = (name: string, more: object = {}): string =>
  JSON.stringify({ name, version: "1.2.3", license: "MIT", ...more });

/** @param files of a checkout */
async function write(
  t: ExecutionContext,
  files: Readonly<Record<string, string>>,
  bundled: readonly string[],
): Promise<{ readonly licenses: string; readonly bom: string }> {
  const root = await mkdtemp(join(tmpdir(), "svc-third-party-"));
  t.teardown(() => rm(root, { recursive: true }));
  for (const [name, text] of Object.entries({ LICENSE: "Of the product.", ...files })) {
    await mkdir(join(root, dirname(name)), { recursive: true });
    await writeFile(join(root, name), text);
  }
  const out = join(root, "out");
  await mkdir(out);
  await writeThirdPartyFiles(out, { root, files: bundled, product });
  const read = (name: string): Promise<string> => readFile(join(out, name), "utf8");
  t.is(await read("LICENSE"), "Of the product.");
  return { licenses: await read(thirdPartyFiles.licenses), bom: await read(thirdPartyFiles.bom) };
}

test("each package of a bundle is listed once, with its license and notices, whatever file of it is bundled", async (t) => {
  const files = {
    "node_modules/zeta/package.json": packageOf("zeta", { license: "ISC" }),
    "node_modules/zeta/LICENSE.md": "Zeta's terms.",
    "node_modules/zeta/NOTICE": "Zeta's notice.",
    "node_modules/zeta/licenses-of-others.txt": "no license",
    "node_modules/zeta/node_modules/@in/ner/package.json": packageOf("@in/ner", { version: "0.1.0" }),
    "node_modules/zeta/node_modules/@in/ner/copying": "The inner one's.",
    "node_modules/alpha/package.json": packageOf("alpha"),
    "node_modules/unused/package.json": packageOf("unused"),
  };
  const bundled = [
    "src/main.ts",
    "node_modules/zeta/lib/a.js",
    "node_modules/zeta/lib/b.js",
    "node_modules/zeta/node_modules/@in/ner/dist/c.js",
    "node_modules/alpha/index.js",
  ];
  const { licenses, bom } = await write(t, files, bundled);
  t.deepEqual(
    [...licenses.matchAll(/^=+\n(.*)\n=+$/gm)].map(([, title]) => title),
    ["alpha 1.2.3 (MIT)", "zeta 1.2.3 (ISC)", "@in/ner 0.1.0 (MIT)"],
  );
  for (const text of ["Declared license: MIT.", "Zeta's terms.", "Zeta's notice.", "The inner one's."])
    t.true(licenses.includes(text), text);
  t.false(licenses.includes("no license"));
  const { components, metadata } = JSON.parse(bom) as { components: unknown; metadata: unknown };
  t.like(metadata, {
    component: { name: "product", version: "9.8.7", licenses: [{ expression: "Apache-2.0" }] },
  });
  const [library, expression] = [{ type: "library" }, (name: string) => [{ expression: name }]];
  t.like(components, [
    { ...library, name: "alpha", licenses: expression("MIT"), purl: "pkg:npm/alpha@1.2.3" },
    { ...library, name: "zeta", licenses: expression("ISC"), purl: "pkg:npm/zeta@1.2.3" },
    { ...library, name: "@in/ner", licenses: expression("MIT"), purl: "pkg:npm/%40in/ner@0.1.0" },
  ]);
  // In any order of the bundler's files.
  t.deepEqual(await write(t, files, bundled.toReversed()), { licenses, bom });
});

test("a package without a license is not shipped", async (t) => {
  for (const license of [undefined, { type: "MIT" }])
    await t.throwsAsync(
      write(t, { "node_modules/a/package.json": packageOf("a", { license }) }, ["node_modules/a/a.js"]),
      { message: "a declares no license, so it cannot be distributed" },
    );
});

// Native code for another CPU architecture is accepted from the cache or npm only if it matches the lock file.

const run = promisify(execFile);
const name = "@koromix/koffi-linux-other";

interface Checkout {
  readonly root: string;
  readonly dir: string;
  readonly lock: (version: string, integrity?: string) => Promise<void>;
}

/** @param npmrc npm's configuration there */
async function checkout(t: ExecutionContext, npmrc: string): Promise<Checkout> {
  const root = await mkdtemp(join(tmpdir(), "svc-native-"));
  t.teardown(() => rm(root, { recursive: true }));
  const dir = join(root, nativePackageDir("other"));
  // Where npm looks for it: beside the nearest `node_modules` above.
  const project = dir.replace(/(?<=svc-native)\/.*/, "");
  await mkdir(project, { recursive: true });
  await writeFile(join(project, ".npmrc"), `${npmrc}\ncache=${join(root, "npm-cache")}\n`);
  return {
    root,
    dir,
    lock: (version, integrity = "sha512-none") =>
      writeFile(
        join(root, "package-lock.json"),
        JSON.stringify({ packages: { [`node_modules/${name}`]: { version, integrity } } }),
      ),
  };
}

test("native code of an earlier lock file is not used", async (t) => {
  // No registry is contacted.
  const { root, dir, lock } = await checkout(t, "offline=true");
  await mkdir(dir, { recursive: true });
  await writeFile(join(dir, "package.json"), '{"version":"1.0.0"}');
  await lock("1.0.0");
  await bringNativePackage(root, "other");
  await lock("2.0.0");
  await t.throwsAsync(bringNativePackage(root, "other"), {
    message: /npm pack .*other@2\.0\.0[^]*ENOTCACHED/,
  });
  t.is(await readFile(join(dir, "package.json"), "utf8"), '{"version":"1.0.0"}');
  await t.throwsAsync(bringNativePackage(root, "another"), {
    message: /svc does not support another$/,
  });
});

test("native code from a registry that differs from the lock file is not used", async (t) => {
  const registry = createServer();
  registry.listen(0, "127.0.0.1");
  await once(registry, "listening");
  t.teardown(() => registry.close());
  const url = `http://127.0.0.1:${(registry.address() as AddressInfo).port}/`;
  const { root, dir, lock } = await checkout(t, `registry=${url}\n@koromix:registry=${url}`);
  await mkdir(join(root, "made/package"), { recursive: true });
  const archive = join(root, "made/other.tgz");
  await writeFile(join(root, "made/package/package.json"), JSON.stringify({ name, version: "1.0.0" }));
  await writeFile(join(root, "made/package/koffi.node"), "native");
  await run("tar", ["--create", "--gzip", "--file", archive, "--directory", dirname(archive), "package"]);
  const content = await readFile(archive);
  const integrity = `sha512-${createHash("sha512").update(content).digest("base64")}`;
  const known = {
    name,
    "dist-tags": { latest: "1.0.0" },
    versions: { "1.0.0": { name, version: "1.0.0", dist: { integrity, tarball: `${url}other.tgz` } } },
  };
  registry.on("request", (request, response) =>
    response.end(request.url?.endsWith(".tgz") === true ? content : JSON.stringify(known)),
  );

  await lock("1.0.0", "sha512-of+another");
  await t.throwsAsync(bringNativePackage(root, "other"), {
    message: `${name} 1.0.0 does not match package-lock.json`,
  });
  t.deepEqual(await readdir(dirname(dir)), []);
  await lock("1.0.0", integrity);
  await bringNativePackage(root, "other");
  t.is(await readFile(join(dir, "koffi.node"), "utf8"), "native");
  t.deepEqual(await readdir(dirname(dir)), ["koffi-linux-other"]);
});

// The files of the single executable: complete, owned by the user who runs it, and not writable for others.

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
  const { userHelper, supervisor } = bundledPrograms([], dir);
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
  // Even root cannot look below a loop of links.
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

// `man svc` and the command reference contain the same text and examples as `--help`.

/** `svc app start` is described as `svc start`. */
const topNames = new Set(tree.commands.map(({ name }) => name));

/** The names of each command that help lists, groups before their commands, without `svc app …` for a command of `svc`. */
function pathsOf({ commands }: CommandTree, path: readonly string[] = []): string[][] {
  return commands
    .filter(({ name, hidden }) => !hidden && name !== "help")
    .filter(({ name }) => path.join(" ") !== "app" || !topNames.has(name))
    .flatMap((command) => {
      const here = [...path, command.name];
      return [here, ...pathsOf(command, here)];
    });
}

interface Help {
  /** `svc app logs <id>` */
  readonly usage: string;
  readonly isGroup: boolean;
  /** The terms and descriptions of its own arguments and options. */
  readonly entries: readonly (readonly [term: string, says: string])[];
  readonly examples: readonly string[];
}

/** The text without line breaks. */
async function helpOf(path: readonly string[]): Promise<Help> {
  let printed = "";
  const stdout = { columns: 10_000, isTTY: true, write: (part: string) => (printed += part) !== "" };
  await runSvc([...path, "--help"], { host: { stdout: stdout as never } });
  const entries: [string, string][] = [];
  const examples: string[] = [];
  let section = "";
  for (const line of printed.split("\n")) {
    if (/^\S/.test(line)) section = line;
    if (/^(Arguments|Options):$/.test(section)) {
      const [, term, says] = /^ {2}(\S.*?)(?: {2,}(\S.*))?$/.exec(line) ?? [];
      if (term !== undefined && term !== "-h, --help") entries.push([term, says ?? ""]);
    }
    if (/^Examples?:$/.test(section) && line.startsWith("  ")) examples.push(line.trim());
  }
  const usage = /^Usage: (.*)$/m.exec(printed)?.[1] ?? "";
  const words = usage.split(" ").slice(path.length + 1);
  return {
    usage: ["svc", ...path, ...words.filter((word) => word !== "[options]")].join(" "),
    isGroup: /^(Commands|Apps):$/m.test(printed),
    entries,
    examples,
  };
}

/** A page's section about a command. */
const partOf = (all: string, heading: string, next: string): string | undefined => {
  const start = all.indexOf(`\n${heading}\n`);
  return start < 0 ? undefined : all.slice(start, all.indexOf(next, start + heading.length));
};

test("man and the reference describe each command as its help does", async (t) => {
  let entryCount = 0;
  for (const path of pathsOf(tree)) {
    const { usage, isGroup, entries } = await helpOf(path);
    if (isGroup) continue;
    const inMan = partOf(page, `.SS "${text(usage)}"`, "\n.S");
    const inReference = partOf(`${reference}\n## `, `## \`${usage}\``, "\n## ");
    t.truthy(inMan, usage);
    t.truthy(inReference, usage);
    for (const [term, says] of entries) {
      const lines = `\n.TP\n.B ${text(term)}\n${text(says)}\n`;
      t.true(`${inMan ?? ""}\n`.includes(lines), `man: ${usage}: ${term}`);
      const item = `\n- \`${term}\`: ${says}\n`;
      t.true(`${inReference ?? ""}\n`.includes(item), `reference: ${usage}: ${term}`);
      entryCount += 1;
    }
  }
  t.true(entryCount > 200, String(entryCount));
});

test("common commands have examples, the same in help, man and the reference", async (t) => {
  const shown = new Map<string, readonly string[]>();
  const inMan = page.slice(page.indexOf("\n.SH EXAMPLES\n"), page.indexOf(".SH EXIT STATUS\n"));
  for (const path of pathsOf(tree)) {
    const { examples, usage } = await helpOf(path);
    if (examples.length === 0) continue;
    shown.set(path.join(" "), examples);
    const lines = examples.map((line) => `  ${text(line)}`).join("\n");
    t.true(inMan.includes(text(usage)), usage);
    t.true(inMan.includes(`\n.nf\n${lines}\n.fi\n`), `man: ${usage}`);
    t.true(reference.includes(`\n\`\`\`sh\n${examples.join("\n")}\n\`\`\`\n`), `reference: ${usage}`);
  }
  for (const path of [
    ...["install", "upgrade", "logs", "settings set", "source add", "token issue", "package init"],
    ...["node add", "schedule add", "backup create", "backup restore"],
  ])
    t.true((shown.get(path)?.length ?? 0) >= 2, path);
});

test("man renders the page without a warning", async (t) => {
  t.notRegex(
    page,
    /^'|^\.(?!TH|SH|SS|TP|PP|nf|fi|nh$|ad l$|B |BR |RI |I )/m,
    "nothing else is an instruction",
  );
  t.notRegex(page, /[~^`']/, "groff since 1.23 prints other characters for them");
  const dir = await mkdtemp(join(tmpdir(), "svc-man-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const file = join(dir, "svc.1");
  await writeFile(file, page);
  const { stdout, stderr } = await promisify(execFile)(
    "man",
    ["--warnings", "--local-file", "-Tutf8", "-P", "cat", file],
    { env: { ...process.env, MANWIDTH: "100" }, maxBuffer: 1 << 24 },
  );
  t.is(stderr, "");
  // Bold text is printed twice at one position.
  const printed = stdout.replaceAll(/.\x08/gu, "");
  t.regex(
    printed,
    /^ +-n, --tail <lines>\n +show the last N lines, at most 100000 \(default: 100, or all with\s+--since\)$/m,
  );
  for (const line of [
    "svc schedule add '*/5 * * * *' shell --app hello --command 'echo hi'",
    "svc node add bench ssh://bench:2222 --ssh-option IdentityFile=~/.ssh/bench",
  ])
    t.true(printed.includes(` ${line}\n`), "for copying");
});
