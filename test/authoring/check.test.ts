/** `svc package check` finds what an install or a start would reject, each with its file and line. */
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { checkIndex, checkPackage } from "../../src/authoring/check.ts";
import { programs } from "../support/programs.ts";

const { settingsThread } = programs;

async function directory(t: ExecutionContext, files: Readonly<Record<string, string>>): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-check-"));
  t.teardown(() => rm(dir, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(dir, name)), { recursive: true });
    await writeFile(join(dir, name), text);
  }
  return dir;
}

const head = 'id: a\nname: A\nversion: "1"\nsummary: A.\n';

const onHostsNetwork = "services:\n  a:\n    image: x/y:1\n    network_mode: host\n";

/** `found` is `file:line: what`, of each. */
const cases: readonly { title: string; files: Readonly<Record<string, string>>; found: readonly RegExp[] }[] =
  [
    {
      title: "no manifest",
      files: {},
      found: [/^svc\.yaml:1: there is no svc\.yaml; create one with: svc package init/],
    },
    {
      title: "a wrong key",
      files: { "svc.yaml": `${head}prots: []\n` },
      found: [/^svc\.yaml:5: unknown key "prots"/],
    },
    {
      title: "a default that its setting refuses",
      files: {
        "svc.yaml": `${head}process: { exec: [true] }\nsettings:\n  properties:\n    port: { type: integer, maximum: 9, default: 10, env: P }\n`,
      },
      found: [/^svc\.yaml:5: .*exec/],
    },
    {
      title: "another default that its setting refuses",
      files: {
        "svc.yaml": `${head}process: { exec: ["true"] }\nsettings:\n  properties:\n    port: { type: integer, maximum: 9, default: 10, env: P }\n`,
      },
      found: [/^svc\.yaml:8: the default of the setting "port"/],
    },
    {
      title: "a script that is not there",
      files: { "svc.yaml": `${head}process: { exec: [node, server.js] }\n` },
      found: [/^svc\.yaml:5: process: there is no file "server\.js"/],
    },
    {
      title: "a script that a build makes",
      files: { "svc.yaml": `${head}process: { build: [{ exec: [make] }], exec: [node, dist/server.js] }\n` },
      found: [],
    },
    {
      title: "a working directory that is not there",
      files: { "svc.yaml": `${head}process: { exec: [node, a.js], working_dir: sub }\n` },
      found: [/no directory "sub"/, /no file "sub\/a\.js"/],
    },
    {
      title: "no Dockerfile",
      files: { "svc.yaml": `${head}docker: { build: {} }\n` },
      found: [/^svc\.yaml:5: docker: there is no Dockerfile/],
    },
    {
      title: "an image by its id",
      files: { "svc.yaml": `${head}docker: { build: {} }\n`, Dockerfile: "# x\nFROM deadbeef\n" },
      found: [/^Dockerfile:2: "deadbeef" may be the ID/],
    },
    {
      title: "a compose file that leads out",
      files: {
        "svc.yaml": `${head}compose: { file: c.yaml }\n`,
        "c.yaml": "services:\n  a:\n    image: x/y:1\n    env_file: ../secrets\n",
      },
      found: [/^c\.yaml:4: env_file "\.\.\/secrets" is outside the package/],
    },
    {
      title: "a compose file that asks for more than the manifest",
      files: { "svc.yaml": `${head}compose: { file: c.yaml }\n`, "c.yaml": onHostsNetwork },
      found: [
        /^c\.yaml:2: service "a" shares the host's network; add "host_network" to permissions in svc\.yaml$/,
      ],
    },
    {
      title: "a compose file that asks for what the manifest says",
      files: {
        "svc.yaml": `${head}compose: { file: c.yaml }\npermissions: [host_network]\n`,
        "c.yaml": onHostsNetwork,
      },
      found: [],
    },
    {
      title: "a compose file with a wrong bracket",
      files: { "svc.yaml": `${head}compose: { file: c.yaml }\n`, "c.yaml": "services:\n  a: }\n" },
      found: [/^c\.yaml:2: /],
    },
    {
      title: "a unit with what is refused",
      files: {
        "svc.yaml": `${head}service: { unit: a.service }\n`,
        "a.service": "[Service]\nExecStart=/bin/true\nUser=root\nPrivateUsers=no\n",
      },
      found: [/^a\.service:3: User= is not allowed/, /^a\.service:4: PrivateUsers= is not allowed/],
    },
    {
      title: "a unit without a program",
      files: { "svc.yaml": `${head}service: { unit: a.service }\n`, "a.service": "[Service]\nType=simple\n" },
      found: [/^a\.service:1: ExecStart is missing/],
    },
  ];

for (const { title, files, found } of cases) {
  test(`${title}: ${found.length} found`, async (t) => {
    const { problems } = await checkPackage(await directory(t, files), settingsThread);
    const said = problems.map(({ file, line, message }) => `${file}:${line}: ${message}`);
    t.is(said.length, found.length, said.join("\n"));
    for (const [at, pattern] of found.entries()) t.regex(said[at] ?? "", pattern);
  });
}

test("a manifest behind a link is not read", async (t) => {
  const dir = await directory(t, {});
  await symlink("/etc/passwd", join(dir, "svc.yaml"));
  const { problems } = await checkPackage(dir, settingsThread);
  t.regex(problems[0]?.message ?? "", /svc\.yaml is not a regular file/);
});

test("without an index, the check says what one would be", async (t) => {
  const dir = await directory(t, {});
  for (const [path, what] of [
    [dir, `index.yaml in ${dir}`],
    [join(dir, "nope"), `directory ${join(dir, "nope")}`],
  ] as const) {
    const { message } = await t.throwsAsync(checkIndex(path, settingsThread));
    t.true(
      message.startsWith(
        `there is no ${what}; a source is a directory or a git repository with an index.yaml`,
      ),
    );
  }
});

test("an index and the packages beside it are checked", async (t) => {
  const dir = await directory(t, {
    "index.yaml":
      "packages:\n  good: { directory: good }\n  gone: { directory: gone }\n  other: { directory: bad }\n",
    "good/svc.yaml": head.replace("id: a", "id: good") + 'process: { exec: ["true"] }\n',
    "bad/svc.yaml": `${head}process: { exec: [node, x.js] }\n`,
  });
  const said = (await checkIndex(dir, settingsThread)).map(
    ({ file, line, message }) => `${file}:${line}: ${message}`,
  );
  t.is(said.length, 3, said.join("\n"));
  t.regex(said[0] ?? "", /^index\.yaml:3: gone: there is no directory "gone"/);
  t.regex(said[1] ?? "", /^bad\/svc\.yaml:5: .*"x\.js"/);
  t.regex(said[2] ?? "", /^index\.yaml:4: other: the ID in the package is "a"/);
});
