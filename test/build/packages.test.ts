/** What people install: the same bytes from the same sources, and all that belongs into it. */
import { execFile, spawnSync } from "node:child_process";
import { lstat, mkdir, mkdtemp, readFile, readdir, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";
import test from "ava";
import packageJson from "../../package.json" with { type: "json" };
import { completionScripts } from "../../src/cli/completion-scripts.ts";
import { fastPacking } from "./support/fast-packing.ts";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));
const { version } = packageJson;

/** @param umask of whoever builds */
async function build(dir: string, umask: string): Promise<void> {
  const script = `umask ${umask}; exec "$0" src/build/packages.ts "$1"`;
  await run("sh", ["-c", script, process.execPath, dir], {
    cwd: root,
    env: { ...fastPacking, SOURCE_DATE_EPOCH: "1767225600" },
  });
}

test("packages are the same bytes whenever they are built, and hold what belongs to them", async (t) => {
  t.timeout(10 * 60_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-test-"));
  try {
    const [one, other] = [join(dir, "one"), join(dir, "other")];
    await build(one, "022");
    await build(other, "077");
    const names = (await readdir(one)).sort();
    const executable = `svc-${version}-${process.platform}-${process.arch}`;
    t.deepEqual(
      names.filter((name) => !name.endsWith(".deb")),
      ["SHA256SUMS", executable, `${executable}.tar.gz`],
    );
    t.is(names.length, 4);
    for (const name of names) {
      t.true((await readFile(join(one, name))).equals(await readFile(join(other, name))), name);
    }

    const deb = names.find((name) => name.endsWith(".deb")) ?? "";
    const tarball = names.find((name) => name.endsWith(".tar.gz")) ?? "";
    const { stdout: checked } = await run("sha256sum", ["--check", "--strict", "SHA256SUMS"], { cwd: one });
    t.deepEqual(
      checked.trim().split("\n").sort(),
      [deb, executable, tarball].map((each) => `${each}: OK`).sort(),
    );

    const { stdout: fields } = await run("dpkg-deb", ["--field", join(one, deb)]);
    t.regex(fields, new RegExp(`^Package: svc\nVersion: ${version}\nArchitecture: (amd64|arm64)\n`));
    t.regex(fields, /^Depends: nodejs \(>= 24\), /m);
    t.regex(fields, /^Recommends: ca-certificates$/m);
    t.regex(fields, /^Suggests: bash-completion$/m);
    const { stdout: list } = await run("dpkg-deb", ["--contents", join(one, deb)]);
    t.notRegex(list, /^.{11}(?!root\/root)/m);
    t.notRegex(list, /^-.{7}w/m);
    t.regex(list, /\/koffi\.node$/m);
    t.notRegex(list, /musl/, "of another C library");

    const tree = join(dir, "tree");
    await run("dpkg-deb", ["--raw-extract", join(one, deb), tree]);
    t.true((await lstat(join(tree, "usr/bin/svc"))).isSymbolicLink());
    // As the maintainer scripts lay it out.
    await symlink("files", join(tree, "usr/lib/svc/current"));
    t.is(await svc(join(tree, "usr/bin/svc"), "--version"), `${version}\n`);
    t.regex(await svc(join(tree, "usr/bin/svc"), "--help"), /^Usage: svc /);
    t.regex(await svc(join(tree, "usr/bin/svc"), "app", "--help"), /^Usage: svc app /);
    const content = (path: string): Promise<string> => readFile(join(tree, path), "utf8");
    for (const [path, script] of [
      ["bash-completion/completions/svc", completionScripts.bash],
      ["zsh/vendor-completions/_svc", completionScripts.zsh],
      ["fish/vendor_completions.d/svc.fish", completionScripts.fish],
    ] as const)
      t.is(await content(join("usr/share", path)), script, path);
    const changelog = gunzipSync(await readFile(join(tree, "usr/share/doc/svc/changelog.gz"))).toString();
    t.is(changelog, await readFile(join(root, "CHANGELOG.md"), "utf8"));
    t.regex(await content("usr/lib/systemd/system/svc.service"), /^ExecStart=\/usr\/bin\/svc daemon$/m);
    t.notRegex(await content("usr/lib/systemd/system/svc.service"), /^DelegateSubgroup=/m);
    t.regex(await content("usr/lib/systemd/system/svc.service"), /^ExecStopPost=-/m);
    t.regex(await content("usr/lib/systemd/system/svc.socket"), /^ListenStream=\/run\/svc\/svc.sock$/m);
    for (const script of ["postinst", "prerm", "postrm"])
      await run("sh", ["-n", join(tree, "DEBIAN", script)]);

    const page = gunzipSync(await readFile(join(tree, "usr/share/man/man1/svc.1.gz"))).toString();
    t.regex(page, /^\.TH SVC 1 "2026-01-01" "svc /);
    for (const heading of [
      "svc app start <id...>",
      "svc backup storage add <name>",
      "svc schedule add <trigger> <action>",
      "svc daemon",
      "svc daemon reload",
    ]) {
      t.true(page.includes(`.SS "${heading}`), heading);
    }
    t.false(page.includes('.SS "svc start'), "what no list shows");

    const formats = {
      yaml: /^\.B health\.http\.path$/m,
      toml: /^\.nf$[^]*^#listen = \\\(dq127\.0\.0\.1:8420/m,
    };
    for (const [name, said] of Object.entries(formats)) {
      const file = join(tree, `usr/share/man/man5/svc.${name}.5.gz`);
      const format = gunzipSync(await readFile(file)).toString();
      t.regex(format, said, name);
      t.notRegex(format, /^'|^\.(?!TH|SH|TP|B |BR |nf|fi)/m, "nothing else is an instruction");
      const { stderr } = await run("man", ["--warnings", "--local-file", "-Tutf8", file], {
        env: { ...process.env, MANWIDTH: "100" },
      });
      t.is(stderr, "", name);
    }

    const bom = JSON.parse(await content("usr/lib/svc/files/bom.cdx.json")) as {
      components: { name: string; purl: string; licenses: object[] }[];
    };
    const bundled = new Set(bom.components.map(({ name }) => name));
    for (const name of ["commander", "@bufbuild/protobuf", "koffi", "yazl", "swagger-ui-dist"]) {
      t.true(bundled.has(name), name);
    }
    t.false(bundled.has("ava"));
    t.true(bom.components.some(({ purl }) => purl.startsWith("pkg:npm/%40bufbuild/protobuf@")));
    const licenses = await content("usr/share/doc/svc/copyright");
    for (const name of bundled) t.true(licenses.includes(`\n${name} `), name);
    t.true(licenses.startsWith(await readFile(join(root, "LICENSE"), "utf8")));

    const unpacked = join(dir, "unpacked");
    await mkdir(unpacked);
    await run("tar", ["--extract", "--file", join(one, tarball), "--directory", unpacked]);
    const ofTarball = join(unpacked, `svc-${version}`);
    t.is(await svc(join(ofTarball, "svc.cjs"), "--version"), `${version}\n`);
    for (const name of ["LICENSE", "LICENSES.txt", "bom.cdx.json"])
      t.is(await readFile(join(ofTarball, name), "utf8"), await content(`usr/lib/svc/files/${name}`), name);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

async function svc(main: string, ...args: string[]): Promise<string> {
  const { stdout } = await run(main, args, {
    env: {
      PATH: `${dirname(process.execPath)}:${process.env["PATH"] ?? ""}`,
      HOME: "/nonexistent",
      XDG_CACHE_HOME: "/nonexistent",
    },
  });
  return stdout;
}

test("a date that is none and a processor without native code are said before anything is built", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const said = async (epoch: string, ...arch: string[]): Promise<string> => {
    const { stderr } = await t.throwsAsync<Error & { stderr: string }>(
      run(process.execPath, ["src/build/packages.ts", dir, ...arch], {
        cwd: root,
        env: { ...process.env, SOURCE_DATE_EPOCH: epoch },
      }),
    );
    return stderr;
  };
  t.regex(await said("2026-01-01"), /SOURCE_DATE_EPOCH is 2026-01-01: it must be seconds since 1970/);
  t.regex(await said("1767225600", "riscv64"), /there is no package for riscv64/);
  t.deepEqual(await readdir(dir), []);
});

const arm = "arm64";
const isOther = process.arch !== arm;
/** The registry that `npm ci` uses, too. */
const canBring =
  isOther &&
  spawnSync("npm", ["view", `@koromix/koffi-linux-${arm}`, "version"], { timeout: 60_000 }).status === 0;

(canBring ? test : test.skip)("packages for another processor have its native code", async (t) => {
  t.timeout(300_000);
  const dir = await mkdtemp(join(tmpdir(), "svc-packages-"));
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  await run(process.execPath, [join(root, "src/build/packages.ts"), join(dir, "out"), arm], {
    cwd: root,
    env: fastPacking,
  });
  const names = (await readdir(join(dir, "out"))).sort();
  t.deepEqual(names, ["SHA256SUMS", `svc-${version}-linux-arm64.tar.gz`, `svc_${version}_arm64.deb`]);
  const deb = join(dir, "out", `svc_${version}_arm64.deb`);
  t.regex((await run("dpkg-deb", ["--field", deb])).stdout, /^Architecture: arm64$/m);
  await run("dpkg-deb", ["--extract", deb, join(dir, "tree")]);
  const files = join(dir, "tree/usr/lib/svc/files");
  const native = (await readdir(files, { recursive: true })).filter((name) => name.endsWith(".node"));
  t.true(
    native.length > 0 && native.every((name) => name.startsWith("node_modules/@koromix/koffi-linux-arm64/")),
  );
  for (const name of native) {
    const header = (await readFile(join(files, name))).subarray(0, 20);
    // ELF's number of the processor (elf(5), e_machine).
    t.is(header.readUInt16LE(18), 183, name);
  }
  const bom = await readFile(join(files, "bom.cdx.json"), "utf8");
  t.true(bom.includes("koffi-linux-arm64") && !bom.includes("koffi-linux-x64"));
});
