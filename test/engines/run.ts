/**
 * `npm run check:engines [-- kubernetes|nomad …]`: the output of `svc app export`, for packages of every shape,
 * validated by the engines themselves: a real API server's dry run with strict validation, and `nomad job validate`.
 * Their programs are built once from their modules if Go is installed.
 */
import type { ExportAppRequestTo } from "../../gen/svc/v1/values.ts";
import { missing } from "../../.ci/optional.ts";
import { engineProgram, type EngineProgram } from "./engine-programs.ts";
import { exportShape, shapes } from "../export/support/exported-shapes.ts";
import { startKubernetes } from "./kubernetes.ts";
import { startNomad } from "./nomad.ts";

interface Engine extends AsyncDisposable {
  refuses(part: string): Promise<string | undefined>;
}

interface Check {
  programs: readonly EngineProgram[];
  start: () => Promise<Engine>;
  /** The unit that it validates at a time. */
  parts: (content: string) => readonly string[];
  /** Makes one part invalid for the engine. */
  spoil: (part: string) => string;
}

const checks: Partial<Record<ExportAppRequestTo, Check>> = {
  kubernetes: {
    programs: ["etcd", "kube-apiserver"],
    start: startKubernetes,
    parts: (content) => content.split(/^---$/m),
    spoil: (part) => part.replace(/^metadata:$/m, "unheardOf: true\nmetadata:"),
  },
  nomad: {
    programs: ["nomad"],
    start: startNomad,
    parts: (content) => [content],
    spoil: (part) => part.replace(/"Driver": "docker"/, '"Driver": ""'),
  },
};

const names = process.argv.slice(2);
const counts = { passed: 0, failed: 0, skipped: 0 };
const [withoutGo] = await missing({ go: "the engines' programs are not built." });
for (const [name, check] of Object.entries(checks)) {
  if (names.length > 0 && !names.includes(name)) continue;
  try {
    for (const program of check.programs) await engineProgram(program);
  } catch (error) {
    counts.skipped += 1;
    console.log(`- ${name} (skipped: ${withoutGo ?? (error as Error).message})`);
    continue;
  }
  await using engine = await check.start();
  for (const shape of Object.keys(shapes)) {
    const refusals = await refusalsOf(engine, check, name as ExportAppRequestTo, shape);
    counts[refusals.length === 0 ? "passed" : "failed"] += 1;
    console.log(`${refusals.length === 0 ? "✔" : "✘"} ${name} accepts an app of the shape "${shape}"`);
    for (const refusal of refusals) console.log(refusal.replaceAll(/^/gm, "    "));
  }
}
console.log(
  `check:engines: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} engines skipped`,
);
process.exitCode = counts.failed === 0 ? 0 : 1;

async function refusalsOf(
  engine: Engine,
  { parts, spoil }: Check,
  to: ExportAppRequestTo,
  shape: string,
): Promise<string[]> {
  const { files } = await exportShape(shape, to);
  const refusals: string[] = [];
  for (const part of parts(files[0]?.content ?? "")) {
    const refusal = await engine.refuses(part);
    if (refusal !== undefined) refusals.push(refusal);
    // An engine that accepts everything proves nothing.
    if ((await engine.refuses(spoil(part))) === undefined)
      refusals.push(`it takes what is wrong, too:\n${part}`);
  }
  return refusals;
}
