/** Explains failures of compose from its output. */
import { access } from "node:fs/promises";
import { nearWord } from "../../lib/near-word.ts";
import { serviceKeys } from "./service-claims.ts";

/** Lines of output to consider. */
const maxLines = 20;

/** A line that reports the state of one part, such as `Container a-db-1  Error`. */
const progress = /^(?:Container|Network|Volume|Image) \S+ +\w+$|^ERROR: Encountered errors/;

/** Why compose failed, in the engine's words if the engine rejected the request. */
export function reasonOf(lines: readonly string[]): string {
  const telling = lines.filter((line) => !progress.test(line));
  const reported = telling
    .map((line) => /(?:Error response from daemon: |^ERROR: for \S+ +)(.+)$/.exec(line)?.[1])
    .findLast((words) => words !== undefined);
  const likely = telling.findLast((line) => /error|cannot|failed|denied|invalid/i.test(line));
  return (
    reported ??
    likely ??
    telling.at(-1) ??
    lines.findLast((line) => line.endsWith(" Error")) ??
    "compose failed"
  );
}

/**
 * The reason with all missing mount sources, as the engine names only the first. Unlike plain compose, svc does not let the
 * engine create directories of the host as root.
 * @param sources of all mounts that may be examined
 */
export async function explainMissingSources(reason: string, sources: readonly string[]): Promise<string> {
  const [, first] = /bind source path does not exist: (\S+)/.exec(reason) ?? [];
  if (first === undefined) return reason;
  const missing = new Set([first]);
  for (const source of sources) await access(source).catch(() => missing.add(source));
  const paths = [...missing].toSorted().join(", ");
  return missing.size === 1
    ? `${paths} is mounted, but does not exist on this host; create it`
    : `these are mounted, but do not exist on this host: ${paths}; create them`;
}

/** Messages of docker-compose 1.29 (Debian 12) about keys that it does not support; they blame the format's version. */
const unsupported =
  /(?:The Compose file '.*?' is invalid because: )?(\S+ (?:value )?'\w+' does not match any of the regexes|\S+ contains unsupported option: '\w+'|Unsupported config option for \S+ '\w+'|\S+env_file contains .*? an invalid type|\S+pull_policy value '\w+' is not one of \[.*?\]|could not determine a constructor for the tag '!\w+'|\S+\.ports contains an invalid type|Cannot extend service '.*?' in \S+: services with '\w+' cannot be extended)/;

/** Debian's version rejects `true` and `false` of a variable, which compose 2 reads as text. */
const booleanVariable = /(\S+\.environment\.\S+) contains (?:true|false), which is an invalid type/;

/** A key that neither compose has, at the top or in a service, in the words of compose 1.29 and of compose 2. */
const unknownKey =
  /(?:^|\s)(?:services\.([\w-]+):? )?(?:additional properties )?'(\w+)' ?(?:not allowed|does not match|$)/;

const topKeys = ["configs", "include", "name", "networks", "secrets", "services", "version", "volumes"];

/** Says which key a mistyped one probably means; undefined if no key is near. */
function misspelled(output: string): string | undefined {
  const [, service, key = ""] = unknownKey.exec(output) ?? [];
  const known = service === undefined ? topKeys : serviceKeys;
  const near = known.includes(key) ? undefined : nearWord(key, known);
  const where = service === undefined ? "the file" : `services.${service}`;
  return near === undefined ? undefined : `${where} has the unknown key "${key}"; did you mean "${near}"?`;
}

/** The first line of a warning of compose 2 or 1.29, such as about a variable without a value. */
const warning = /^(?:time="[^"]*" level=warning |WARNING: |The \S+ variable is not set)/;
const withoutValue = /The \\?"?(\w+?)\\?"? variable is not set/;
/** Rejections that a variable without a value can cause. */
const causedByEmptyText =
  /empty section between colons|invalid proto|bad host name ''|\S+\.ports contains an invalid type/;

/** Rejections of compose 2 that do not say what to do. */
const remedies: readonly (readonly [form: RegExp, remedy: (found: readonly string[]) => string])[] = [
  [
    /service "(\S+?)" refers to undefined volume (\S*\/\S*): invalid compose project/,
    ([, service, path]) =>
      `service "${service}" mounts the volume "${path}", which is not declared; for a directory of the package write "./${path}"`,
  ],
  [
    /service "(\S+?)" refers to undefined (volume|network|secret|config) (\S+): invalid compose project/,
    ([, service, kind, name]) =>
      `service "${service}" uses the ${kind} "${name}", which is not declared; add it to "${kind}s" at the top level`,
  ],
  [
    /service "(\S+?)" has neither an image nor a build context specified: invalid compose project/,
    ([, service]) =>
      `service "${service}" has neither "image" nor "build"; add one of them, or remove the service`,
  ],
  [
    /(?:env file (\S+) not found: |Couldn't find env file: (\S+))/,
    ([, path, classic]) => `the env_file ${path ?? classic} does not exist; create it`,
  ],
  [
    /invalid interpolation format for (\S+)\.\s+You may need to escape/,
    ([, key]) => `${key} has a "$" that does not start a variable; write "$$" instead`,
  ],
];

/** Why compose rejects a file, with what to do. @param text its output */
export function configFailure(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  const unset = new Set(lines.flatMap((line) => withoutValue.exec(line)?.[1] ?? []));
  const telling = lines.filter((line) => !warning.test(line)).join("\n");
  const output = lastLines(telling).join(" ");
  for (const [form, remedy] of remedies) {
    const found = form.exec(telling);
    if (found !== null) return remedy(found);
  }
  if (unset.size > 0 && causedByEmptyText.test(output))
    return `${output.replace(/:$/, "")}; these variables have no value: ${[...unset].toSorted().join(", ")}; set them in .env`;
  if (output.includes("'name' does not match any of the regexes"))
    return 'this docker-compose is too old for "name" at the top: delete that line (svc names the project), or install compose 2';
  const typo = misspelled(output);
  if (typo !== undefined) return typo;
  const [, variable] = booleanVariable.exec(output) ?? [];
  if (variable !== undefined)
    return `${variable} is not text, which docker-compose 1.29 does not support: write it in quotes, or install compose 2`;
  const [, unsupportedKey] = unsupported.exec(output) ?? [];
  if (unsupportedKey !== undefined)
    return `${unsupportedKey}; docker-compose 1.29 does not support it: check its spelling, leave it out, or install compose 2`;
  return output || "compose rejects it";
}

export function lastLines(text: string): string[] {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .slice(-maxLines);
}
