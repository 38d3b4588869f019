/**
 * Checks values against a package's own settings schema. The schema comes from strangers, so it must not be able to stall the
 * daemon: that is done in a thread of its own (see `settings-check.ts`), in turns, within its time.
 */
import { invalidRequest, maxStructure, SvcError, type FieldViolation } from "../errors.ts";
import { hasMoreStructure } from "../lib/json-structure.ts";
import type { JsonObject } from "../lib/json.ts";
import { TaskError, TaskThread } from "../lib/task-thread.ts";
import { portViolations, whyNoPort } from "./chosen-ports.ts";
import { fieldStep } from "./field-path.ts";
import { settingsOf, type Manifest } from "./manifest.ts";
import type { SettingError, SettingsFinding } from "./settings-check.ts";
import { expandedLength } from "./settings.ts";
import { settingsSchema } from "./settings-schema.ts";
import type { AuthorsThread, YamlThread } from "./yaml-thread.ts";

/** So much the texts of a manifest grow by their values: no kernel starts a program with as much (execve(2)). */
const maxExpandedLength = 1024 * 1024;
/** Values as JSON are at most this long. */
const maxValuesBytes = 256 * 1024;
const maxViolations = 50;
/** Of those of a package, where one is none of them. */
const maxToldSettings = 20;
/** For the thread to give its memory back. */
const idleMs = 30_000;
/** Checks that wait for the thread. */
const maxWaiting = 256;

export interface SettingsValidator extends Disposable {
  /**
   * Holds `values` against the manifest's schema; unknown keys are refused. Merge the defaults first.
   * @param uid in whose turn
   * @throws SvcError `invalid_argument` `invalid_request` with one violation per field, such as `values.port`;
   * `invalid_argument` `package_invalid` when the schema itself cannot be used; `too_many`.
   */
  validate: (manifest: Manifest, values: JsonObject, uid: number) => Promise<void>;
}

export interface SettingsValidatorOptions {
  /** The entry point of a thread of its own. Default: the source. */
  threadUrl?: URL;
  /** Whose thread is used instead. It stays theirs. */
  yaml?: YamlThread;
  /** How much of the processor's time one check may take. Default 5,000. */
  timeoutMs?: number;
}

export function createSettingsValidator(options: SettingsValidatorOptions = {}): SettingsValidator {
  const { threadUrl = new URL("./settings-thread.ts", import.meta.url), timeoutMs = 5_000 } = options;
  using own = new DisposableStack();
  const thread: AuthorsThread =
    options.yaml?.tasks ?? own.use(new TaskThread({ url: threadUrl, timeoutMs, idleMs, maxWaiting }));
  const owned = own.move();

  async function errorsOf(
    schema: JsonObject,
    values: JsonObject,
    id: string,
    uid: number,
  ): Promise<readonly SettingError[]> {
    const answer = await thread.run(`uid ${uid}`, { schema, values }).catch((error: unknown) => {
      throw error instanceof TaskError ? taskFailed(error, id, timeoutMs) : error;
    });
    const finding = answer as SettingsFinding;
    if ("unusable" in finding) throw unusable(id, finding.unusable);
    return finding.errors;
  }

  return {
    async validate(manifest, values, uid) {
      const schema = settingsSchema(manifest);
      checkSize(JSON.stringify(values));
      // No thread has to start for what has nothing to match.
      const errors = schema === null ? unknownKeys(values) : await errorsOf(schema, values, manifest.id, uid);
      const violations = violationsOf(errors, manifest);
      const refused = new Set(violations.map(({ field }) => field));
      const ports = portViolations(manifest, values, whyNoPort).filter(({ field }) => !refused.has(field));
      violations.push(...ports);
      if (violations.length > 0) throw invalidRequest(violations);
      requireShort(manifest, values);
    },

    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** What is wrong with values of a package that has no settings. */
function unknownKeys(values: JsonObject): SettingError[] {
  const error = { keyword: "additionalProperties", instancePath: "", message: "" };
  return Object.keys(values).map((additionalProperty) => ({ ...error, params: { additionalProperty } }));
}

/** Backups hold them as well, and parse as much in one piece. */
function checkSize(json: string): void {
  let description: string | undefined;
  if (Buffer.byteLength(json) > maxValuesBytes)
    description = `the values are longer than ${maxValuesBytes} bytes of JSON`;
  else if (hasMoreStructure(json, maxStructure))
    description = `the values hold more than ${maxStructure} elements and brackets`;
  // They are all that is escaped so.
  else if (/(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(json))
    description = "the values hold half a character (a surrogate without its pair)";
  if (description !== undefined) throw invalidRequest([{ field: "values", description }]);
}

function requireShort(manifest: Manifest, values: JsonObject): void {
  const length = expandedLength(manifest, values);
  if (length <= maxExpandedLength) return;
  const description = `with these values the package's commands and environment grow by ${length} characters, more than ${maxExpandedLength}`;
  throw invalidRequest([{ field: "values", description }]);
}

function unusable(id: string, why: string): SvcError<"package_invalid"> {
  const message = `the settings schema of "${id}" cannot be compiled: ${why}`;
  return new SvcError("package_invalid", message);
}

function taskFailed(error: TaskError, id: string, timeoutMs: number): SvcError {
  switch (error.why) {
    case "too_slow": {
      const message = `checking these settings of "${id}" takes more than ${timeoutMs} ms of the processor: its schema is too slow`;
      return new SvcError("package_invalid", message);
    }
    case "starved":
      return new SvcError(
        "unavailable",
        `the settings of "${id}" could not be checked, as this machine has too much to do; try again`,
      );
    case "too_many":
      return new SvcError("too_many", `${maxWaiting} checks of settings wait already; try again in a moment`);
    case "broken":
      return unusable(id, "it takes too much");
  }
}

/** One violation per field: the first that ajv reports of each. */
function violationsOf(errors: readonly SettingError[], manifest: Manifest): FieldViolation[] {
  const byField = new Map<string, FieldViolation>();
  for (const error of errors) {
    const violation = violationOf(error, manifest);
    const field = violation.field ?? "";
    if (!byField.has(field)) byField.set(field, violation);
    if (byField.size >= maxViolations) break;
  }
  return [...byField.values()];
}

function violationOf(error: SettingError, manifest: Manifest): FieldViolation {
  const field = `values${error.instancePath.split("/").slice(1).map(fieldStep).join("")}`;
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case "additionalProperties": {
      const key = String(params["additionalProperty"]);
      const known = error.instancePath === "" ? settingsOf(manifest).map(([name]) => name) : [];
      const others = known.length === 0 ? "" : `; it has ${known.slice(0, maxToldSettings).join(", ")}`;
      return { field: field + fieldStep(key), description: `the package has no setting "${key}"${others}` };
    }
    case "required":
      return { field: field + fieldStep(String(params["missingProperty"])), description: "is required" };
    case "enum":
      return { field, description: `must be one of ${JSON.stringify(params["allowedValues"])}` };
    default:
      return { field, description: error.message ?? "is not valid" };
  }
}
