/** Reads variables of a project's `.env` through compose, so that its own rules for quotes, comments and blank values apply. */
import { readResolved, withoutCopies } from "./compose-document.ts";
import type { ComposeCommand, CommandRunner } from "./compose-command.ts";
import { invalid, type YamlReader } from "./compose-sources.ts";
import { configFailure } from "./compose-failure.ts";
import { pairsOf, recordOf } from "./compose-values.ts";

export interface DotenvOptions {
  readonly command: Pick<ComposeCommand, "run">;
  readonly runner: CommandRunner;
  readonly readYaml: YamlReader;
  /** The directory of the copies that compose reads, if it does not read in place. */
  readonly copies?: string;
  readonly signal?: AbortSignal | undefined;
}

const timeoutMs = 60_000;
/** The value of a variable that is not set; compose 1.29 cannot express the difference in another way. */
const unset = "svc:unset";

/**
 * The values of variables in the `.env` of a directory, without those that it does not set. Compose resolves a project that
 * consists only of these variables, so that it reads no other file.
 * @param directory absolute path
 * @param files absolute paths of files to read in place of `.env`
 * @throws SvcError `package_invalid` if compose rejects the file
 */
export async function dotenvValues(
  options: DotenvOptions,
  directory: string,
  names: Iterable<string>,
  files: readonly string[] = [],
): Promise<ReadonlyMap<string, string>> {
  const environment = Object.fromEntries(
    [...names].filter((name) => /^[A-Za-z_]\w*$/.test(name)).map((name) => [name, `\${${name}-${unset}}`]),
  );
  const values = await resolvedPairs(options, directory, environment, { files });
  return new Map(Object.entries(values).filter(([, value]) => value !== unset));
}

/**
 * The values of texts with variables, with the `.env` of a directory and other variables, which take precedence.
 * @param directory absolute path
 * @throws SvcError `package_invalid` if compose rejects a text or `.env`
 */
export async function resolvedTexts(
  options: DotenvOptions,
  directory: string,
  texts: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<readonly string[]> {
  const keys = texts.map((_, at) => `TEXT_${at}`);
  const written = Object.fromEntries(keys.map((key, at) => [key, texts[at] ?? ""]));
  const values = await resolvedPairs(options, directory, written, { env });
  return keys.map((key) => values[key] ?? "");
}

async function resolvedPairs(
  { command, runner, readYaml, copies, signal }: DotenvOptions,
  directory: string,
  environment: Readonly<Record<string, string>>,
  { env = {}, files = [] }: { env?: Readonly<Record<string, string>>; files?: readonly string[] },
): Promise<Record<string, string>> {
  if (Object.keys(environment).length === 0) return {};
  const project = JSON.stringify({ services: { values: { image: "none", environment } } });
  const { exitCode, stdout, stderr, truncated } = await command.run(
    runner,
    [
      ...["--file", "-", "--project-directory", directory],
      ...[...files.flatMap((file) => ["--env-file", file]), "config"],
    ],
    {
      ...{ cwd: directory, stdin: Buffer.from(project), env: { ...env, COMPOSE_PROJECT_NAME: "values" } },
      ...{ timeoutMs, readsChoices: true, ...(signal && { signal }) },
    },
  );
  if (exitCode !== 0) throw invalid(".env", configFailure(withoutCopies(stderr, copies)));
  if (truncated) throw invalid(".env", "the values that the compose file uses are too long; shorten them");
  const { services } = await readResolved(stdout, ".env", readYaml, copies);
  return pairsOf(recordOf(recordOf(services)["values"])["environment"]);
}
