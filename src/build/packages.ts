/**
 * `npm run package [-- DIR [ARCH…]]`: creates the packages for users in `packages/` or DIR: a tarball and a Debian
 * package for this architecture or the named ones (`x64 arm64`), a single executable for this one, and checksums. The
 * same sources and SOURCE_DATE_EPOCH result in the same bytes.
 */
import { execFile } from "node:child_process";
import { hash } from "node:crypto";
import { cp, glob, mkdir, mkdtemp, readFile, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import packageJson from "../../package.json" with { type: "json" };
import { completionScripts } from "../cli/completion/completion-scripts.ts";
import { configTemplate } from "../daemon/config-template.ts";
import { unitText } from "../lib/unit-text.ts";
import { commandManual } from "./manual.ts";
import { configurationPage, manifestPage, type Schema } from "./man-formats.ts";
import { manPage } from "./man-page.ts";
import { bringNativePackage } from "./native-package.ts";
import { makeSingleExecutable } from "./single-executable.ts";
import { makeTarball, normalize } from "./tarball.ts";
import { thirdPartyFiles } from "./third-party.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");
const outDir = resolve(process.argv[2] ?? join(root, "packages"));
const { name, version } = packageJson;
/** Debian's names of the supported architectures. */
const debianNames: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

const epoch = await sourceDate();
const work = await mkdtemp(join(tmpdir(), "svc-packages-"));
try {
  await mkdir(outDir, { recursive: true });
  const made: string[] = [];
  const named = process.argv.slice(3);
  for (const arch of named.length > 0 ? named : [process.arch]) made.push(...(await makePackages(arch)));
  await writeFile(join(outDir, "SHA256SUMS"), (await Promise.all(made.map(checksumLine))).join(""));
  console.log([...made, join(outDir, "SHA256SUMS")].join("\n"));
} finally {
  await rm(work, { recursive: true, force: true });
}

/** @param arch Node's name of the architecture */
async function makePackages(arch: string): Promise<string[]> {
  const debianArch = debianNames[arch];
  if (debianArch === undefined) throw new Error(`there is no package for ${arch}`);
  await bringNativePackage(root, arch);
  const bundle = join(work, arch, `${name}-${version}`);
  await run(process.execPath, [join(root, "src/build/bundle.ts"), bundle, arch]);
  const tarball = join(outDir, `${name}-${version}-${process.platform}-${arch}.tar.gz`);
  await makeTarball(bundle, tarball, epoch);
  const made = [tarball, await makeDebianPackage(bundle, debianArch)];
  // The executable contains the Node that runs this build.
  if (arch !== process.arch) return made;
  const outFile = join(outDir, `${name}-${version}-${process.platform}-${arch}`);
  await makeSingleExecutable({ root, bundle, outFile });
  return [...made, outFile];
}

/** Date of all files in seconds since 1970: the time of the last commit. */
async function sourceDate(): Promise<number> {
  const given = process.env["SOURCE_DATE_EPOCH"];
  const text = given ?? (await run("git", ["log", "-1", "--format=%ct"], { cwd: root })).stdout.trim();
  if (!/^\d{1,12}$/.test(text))
    throw new Error(`SOURCE_DATE_EPOCH is ${text}, but must be seconds since 1970`);
  return Number(text);
}

async function makeDebianPackage(bundle: string, debianArch: string): Promise<string> {
  const tree = join(work, `debian-${debianArch}`);
  const put = async (path: string, content: string | Uint8Array, mode = 0o644): Promise<void> => {
    const file = join(tree, path);
    await mkdir(join(file, ".."), { recursive: true });
    await writeFile(file, content, { mode });
  };
  // The maintainer scripts copy it to the directory that svc runs from.
  await cp(bundle, join(tree, "usr/lib/svc/files"), { recursive: true });
  // Debian uses glibc, so musl is not needed.
  for await (const dir of glob("usr/lib/svc/files/node_modules/@koromix/*/musl_*", { cwd: tree }))
    await rm(join(tree, dir), { recursive: true });
  await mkdir(join(tree, "usr/bin"));
  await symlink("../lib/svc/current/svc.cjs", join(tree, "usr/bin/svc"));
  const unit = await readFile(join(root, "packaging/svc.service"), "utf8");
  // The maintainer scripts adapt it to newer versions of systemd.
  const ofDebian = unitText(unit, 0).replace("/usr/local/bin/svc", "/usr/bin/svc");
  await put("usr/lib/systemd/system/svc.service", ofDebian);
  for (const name of ["svc.socket", "svc-tcp.socket"])
    await put(`usr/lib/systemd/system/${name}`, await readFile(join(root, "packaging", name), "utf8"));
  await put("usr/share/bash-completion/completions/svc", completionScripts.bash);
  await put("usr/share/zsh/vendor-completions/_svc", completionScripts.zsh);
  await put("usr/share/fish/vendor_completions.d/svc.fish", completionScripts.fish);
  const date = new Date(epoch * 1000).toISOString().slice(0, 10);
  await put(
    "usr/share/man/man1/svc.1.gz",
    gzipSync(manPage({ manual: await commandManual(), version, date }), { level: 9 }),
  );
  const schema = JSON.parse(await readFile(join(bundle, "manifest.schema.json"), "utf8")) as Schema;
  const example = await readFile(join(root, "examples/hello/svc.yaml"), "utf8");
  await put(
    "usr/share/man/man5/svc.yaml.5.gz",
    gzipSync(manifestPage(schema, example, { version, date }), { level: 9 }),
  );
  const template = configTemplate("/etc/svc/svc.toml", { uid: 0, home: "/root", env: {} });
  await put(
    "usr/share/man/man5/svc.toml.5.gz",
    gzipSync(configurationPage(template, { version, date }), { level: 9 }),
  );
  await put("usr/share/doc/svc/copyright", await copyright(bundle));
  await put(
    "usr/share/doc/svc/changelog.gz",
    gzipSync(await readFile(join(root, "CHANGELOG.md")), { level: 9 }),
  );
  for (const name of await readdir(join(root, "packaging/debian"))) {
    const mode = name === "templates" || name === "triggers" ? 0o644 : 0o755;
    await put(`DEBIAN/${name}`, await readFile(join(root, "packaging/debian", name)), mode);
  }
  await put("DEBIAN/control", control(await sizeKib(tree), debianArch));
  await normalize(tree, epoch);
  const file = join(outDir, `${name}_${version}_${debianArch}.deb`);
  // Explicit, because the default of dpkg-deb differs between distributions.
  const compressor = process.env["DPKG_DEB_COMPRESSOR_TYPE"] ?? "xz";
  await run("dpkg-deb", ["--root-owner-group", `-Z${compressor}`, "--build", tree, file], {
    env: { ...process.env, SOURCE_DATE_EPOCH: String(epoch) },
  });
  return file;
}

function control(installedKib: number, debianArch: string): string {
  return `Package: ${name}
Version: ${version}
Architecture: ${debianArch}
Maintainer: the svc authors <svc@localhost>
Installed-Size: ${installedKib}
Depends: nodejs (>= ${packageJson.engines.node.replace(">=", "")}), git, util-linux, debconf
Recommends: ca-certificates
Suggests: bash-completion
Section: admin
Priority: optional
Description: ${packageJson.description.replace(/\.$/, "")}
 svc installs, runs, watches, schedules and backs up applications,
 as processes, services or containers.
`;
}

async function copyright(bundle: string): Promise<string> {
  const own = await readFile(join(bundle, "LICENSE"), "utf8");
  return `${own}\nWhat svc is bundled with:\n\n${await readFile(join(bundle, thirdPartyFiles.licenses), "utf8")}`;
}

async function sizeKib(dir: string): Promise<number> {
  let bytes = 0;
  for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) bytes += (await stat(join(entry.parentPath, entry.name))).size;
  }
  return Math.ceil(bytes / 1024);
}

async function checksumLine(file: string): Promise<string> {
  return `${hash("sha256", await readFile(file))}  ${basename(file)}\n`;
}
