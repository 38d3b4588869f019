/** Root's packages get no files of the host: compose reads no file outside of the package, however it is named. */
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import test from "ava";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import type { Runtime } from "../../../src/packages/manifest/manifest.ts";
import { YamlThread } from "../../../src/packages/manifest/yaml-thread.ts";
import { ComposeCommand } from "../../../src/runtimes/compose/compose-command.ts";
import {
  ComposeProjects,
  type ComposeProjectsOptions,
} from "../../../src/runtimes/compose/compose-project.ts";
import { composeGenerations } from "../../support/compose-generations.ts";
import { isRoot, needsRoot } from "../../support/daemon.ts";
import { programs } from "../../support/programs.ts";
import { policyDirectory } from "../../runtimes/support/policy-app.ts";

/** Files of a package. @param outside a directory with `plain.env` and `compose.yaml` */
type PackageOf = (outside: string) => Readonly<Record<string, string | Buffer>>;

const secret = "sung";
const web = (more: string): string => `services:\n  web:\n    image: a\n    ${more}\n`;
/** A directory whose paths lead out of the package if compose resolves them from above. */
const deep = "d/d/d/d/d/d/d/d/d/d";
const above = (outside: string): string => `${"../".repeat(10)}${outside.slice(1)}`;
const labelled = 'services: {p: {image: a, labels: {x: "${CANARY:-}"}}}\n';

const packages: readonly [title: string, of: PackageOf][] = [
  ...["\u0085", "\u2028", "\u2029", "\r"].map((end): [string, PackageOf] => [
    `after a comment that ends with ${JSON.stringify(end)}`,
    (outside) => ({ "compose.yaml": web(`# a comment${end}    env_file: ${outside}/plain.env`) }),
  ]),
  [
    "in UTF-16",
    (outside) => ({
      "compose.yaml": Buffer.from(`\ufeff${web(`env_file: ${outside}/plain.env`)}`, "utf16le"),
    }),
  ],
  [
    "by an anchor on a key",
    (outside) => ({
      "own.env": "A=1\n",
      "compose.yaml": `x-a: &a own.env\nx-b: {&a ${outside}/plain.env : 1}\n${web("env_file: *a")}`,
    }),
  ],
  [
    "by an anchor inside of an alias",
    (outside) => ({
      "own.env": "A=1\n",
      "compose.yaml": `x-o: &o {f: &a own.env}\nx-b: &a ${outside}/plain.env\nx-c: *o\n${web("env_file: *a")}`,
    }),
  ],
  [
    "by an include with a key in capitals",
    (outside) => ({ "compose.yaml": `include: [{PATH: ${outside}/compose.yaml}]\n${web("init: true")}` }),
  ],
  [
    "by an include with an environment in capitals",
    (outside) => ({
      "part.yaml": labelled,
      "compose.yaml": `include: [{path: part.yaml, Env_File: ${outside}/plain.env}]\n${web("init: true")}`,
    }),
  ],
  [
    "by an include from another directory",
    (outside) => ({
      [`${deep}/part.yaml`]: `services: {p: {image: a, env_file: "${above(outside)}/plain.env"}}\n`,
      "compose.yaml": `include: [{path: ${deep}/part.yaml, project_directory: .}]\n${web("init: true")}`,
    }),
  ],
  [
    "by the second file of an include",
    (outside) => ({
      "first.yaml": "services: {}\n",
      [`${deep}/part.yaml`]: `services: {p: {image: a, env_file: "${above(outside)}/plain.env"}}\n`,
      "compose.yaml": `include: [{path: [first.yaml, ${deep}/part.yaml]}]\n${web("init: true")}`,
    }),
  ],
  [
    "by the environment of a nested include",
    (outside) => ({
      [`${deep}/part.yaml`]: "include: [q/part.yaml]\n",
      [`${deep}/q/part.yaml`]: `include: [{path: last.yaml, env_file: "${above(outside)}/plain.env"}]\n`,
      [`${deep}/q/last.yaml`]: labelled,
      "compose.yaml": `include: [${deep}/part.yaml]\n${web("init: true")}`,
    }),
  ],
  [
    "by a directory named ~",
    (outside) => {
      const below = `~${outside.slice(homedir().length)}`;
      return {
        [`${below}/part.yaml`]: "services: {p: {image: a, env_file: plain.env}}\n",
        [`${below}/plain.env`]: "A=1\n",
        "compose.yaml": `include: ["./${below}/part.yaml"]\n${web("init: true")}`,
      };
    },
  ],
];

for (const { name, dirs, isClassic, missing } of composeGenerations) {
  const generationTest = isRoot && missing === "" ? test : test.skip;
  generationTest(
    `${name} reads no file outside of root's package${isRoot ? missing : needsRoot}`,
    async (t) => {
      t.timeout(600_000);
      using yaml = new YamlThread({ threadUrl: programs.settingsThread });
      await using userHelpers = createUserHelpers({
        ...{ helperPath: programs.userHelper, searchPath: dirs.join(":") },
      });
      const command = new ComposeCommand(userHelpers);
      const root = await userHelpers.as(0);
      for (const [title, of] of packages) {
        await using place = await policyDirectory();
        const outside = await mkdtemp(join(homedir(), "svc-outside-"));
        try {
          await writeFile(join(outside, "plain.env"), `CANARY=${secret}\n`);
          await writeFile(
            join(outside, "compose.yaml"),
            `services: {o: {image: a, labels: {x: ${secret}}}}\n`,
          );
          const repo = join(place.dir, "repo");
          for (const [path, content] of Object.entries(of(outside))) {
            await mkdir(dirname(join(repo, path)), { recursive: true });
            await writeFile(join(repo, path), content);
          }
          if (!isClassic) {
            const args = ["--file", join(repo, "compose.yaml"), "--project-directory", repo, "config"];
            const { stdout } = await command.run(root, args, { cwd: repo, timeoutMs: 60_000 });
            t.true(stdout.includes(secret), `compose reads it: ${title}`);
          }
          const app = place.app(0);
          const runtime = { kind: "compose", file: "compose.yaml", profiles: [], env: {} } satisfies Runtime;
          const projects = new ComposeProjects({
            ...{ userHelpers, yaml, command, events: { verify: () => Promise.resolve() } },
            ...{ images: { builtTag: () => "" }, engine: { socket: "/srv/docker.sock" } },
            ownership: { projectOf: (id: string) => `svc-${id}` },
            portRules: { unprivilegedPortStart: 1024, daemonPort: 0 },
            ...{ publishAddress: "127.0.0.1", usersPidsLimit: 100, maxUserProcesses: 1_000 },
            composeDir: join(place.dir, "../compose"),
          } as unknown as ComposeProjectsOptions);
          const resolving = projects.resolve({ ...app, uid: 0, manifest: { ...app.manifest, runtime } });
          await t.throwsAsync(resolving, { message: /^(?:compose|d\/).*\.yaml: / }, title);
        } finally {
          await rm(outside, { recursive: true });
        }
      }
    },
  );
}
