/** Each generation of compose, or the policy after it, rejects files that ask for too much. */
import { chmod, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { stringify } from "yaml";
import { createUserHelpers } from "../../../src/run-as/user-helpers.ts";
import { mapBounded } from "../../../src/lib/map-bounded.ts";
import { YamlThread } from "../../../src/packages/manifest/yaml-thread.ts";
import { ComposeCommand } from "../../../src/runtimes/compose/compose-command.ts";
import { readResolved } from "../../../src/runtimes/compose/compose-document.ts";
import type { YamlReader } from "../../../src/runtimes/compose/compose-sources.ts";
import { composeGenerations } from "../../support/compose-generations.ts";
import { isRoot, needsRoot } from "../../support/daemon.ts";
import { programs } from "../../support/programs.ts";
import { excessiveFiles, policyVerdict } from "../../runtimes/support/compose-files.ts";
import { nobody, policyDirectory } from "../../runtimes/support/policy-app.ts";

const atOnce = 4;

/**
 * Compose v2 reads the text "0" as no value, for which svc has a default, keeps one of two mounts at the same
 * target, and ignores options of a network's addresses.
 */
const madeHarmless = new Set([
  "no limit of processes as text",
  "no limit of processes of a deployment",
  "two mounts in one place",
  "options of addresses",
]);

for (const { name, dirs, isClassic, missing } of composeGenerations) {
  const generationTest = isRoot && missing === "" ? test : test.skip;
  generationTest(
    `${name} resolves no file that asks for too much to one that is allowed${isRoot ? missing : needsRoot}`,
    async (t) => {
      t.timeout(600_000);
      await using place = await policyDirectory();
      using yaml = new YamlThread({ threadUrl: programs.settingsThread });
      await using userHelpers = createUserHelpers({
        ...{ helperPath: programs.userHelper, searchPath: dirs.join(":") },
      });
      const command = new ComposeCommand(userHelpers);
      t.is(await command.isClassic(), isClassic);
      const userHelper = await userHelpers.as(nobody);
      let judged = 0;
      const outcomes = await mapBounded(
        [...excessiveFiles(place.dir).entries()],
        atOnce,
        async ([at, { title, document }]) => {
          const cwd = join(place.dir, "repo", `file-${at}`);
          const file = join(cwd, "compose.yaml");
          await mkdir(cwd);
          await writeFile(file, stringify(document));
          await chmod(cwd, 0o755);
          const args = ["--file", file, "--project-name", "svc-web", "--project-directory", cwd, "config"];
          const { exitCode, stdout } = await command.run(userHelper, args, {
            ...{ cwd, env: {}, timeoutMs: 120_000, maxOutputBytes: 16 * 1024 * 1024 },
          });
          if (exitCode !== 0) return [];
          judged++;
          const readYaml: YamlReader = (text, bounds) => yaml.read(text, bounds, 0);
          const verdict = await readResolved(stdout, "compose.yaml", readYaml).then(
            (resolved) => policyVerdict(place, resolved, isClassic),
            (error: unknown) => String(error),
          );
          return verdict === "allowed" ? [title] : [];
        },
      );
      const found = outcomes.flat().filter((title) => isClassic || !madeHarmless.has(title));
      t.deepEqual(found, []);
      // Most files are valid: the policy is what rejects them.
      t.true(judged > 60, `${judged}`);
    },
  );
}
