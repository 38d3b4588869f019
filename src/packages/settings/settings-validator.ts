/**
 * Validates values against a package's settings schema. The schema is untrusted and must not block the daemon, so
 * this runs in a separate thread (see `settings-check.ts`), with a queue per user and a time limit.
 */
import { invalidRequest, maxStructure, SvcError, type FieldViolation } from "../../errors.ts";
import { nearWord } from "../../lib/near-word.ts";
import { hasMoreStructure, type JsonObject } from "../../lib/json.ts";
import { TaskError, TaskThread } from "../../lib/task-thread.ts";
import { portViolations, explainMissingPort } from "./chosen-ports.ts";
import { fieldStep, pointerKey } from "../manifest/rule-problem.ts";
import { settingsOf, type Manifest } from "../manifest/manifest.ts";
import type { SettingError, SettingsFinding } from "./settings-check.ts";
import { expandedLength } from "./settings.ts";
import { settingsSchema } from "./settings-schema.ts";
import { authorsBounds, reachedLimit, type AuthorsThread, type YamlThread } from "../manifest/yaml-thread.ts";

/** Limit for the growth of a manifest's texts by their values; the kernel starts no program with more (execve(2)). */
const maxExpandedLength = 1024 * 1024;
/** Limit of the values as JSON. */
const maxValuesBytes = 256 * 1024;
const maxViolations = 50;
/** Limit of listed settings in a message about an unknown one. */
const maxListedSettings = 20;
/** Idle time before the thread ends and frees its memory. */
const idleMs = 30_000;

export interface SettingsValidator extends Disposable {
  /**
   * Validates `values` against the manifest's schema; unknown keys are rejected. Merge the defaults first.
   * @param uid the user whose queue the check waits in
   * @param signal removes a waiting check
   * @throws SvcError `invalid_argument` `invalid_request` with one violation per field, such as `values.port`;
   *   `invalid_argument` `package_invalid` if the schema itself is not usable; `too_many`; the signal's reason.
   */
  validate: (manifest: Manifest, values: JsonObject, uid: number, signal?: AbortSignal) => Promise<void>;
}

export interface SettingsValidatorOptions {
  /** Entry point of a separate thread. Default: the source. */
  threadUrl?: URL;
  /** Shares this thread instead of starting one, without owning it. */
  yaml?: YamlThread;
  /** CPU time per check. Default 5,000. */
  timeoutMs?: number;
}

export function createSettingsValidator(options: SettingsValidatorOptions = {}): SettingsValidator {
  const { threadUrl = new URL("./settings-thread.ts", import.meta.url), timeoutMs = 5_000 } = options;
  using own = new DisposableStack();
  const thread: AuthorsThread =
    options.yaml?.tasks ?? own.use(new TaskThread({ url: threadUrl, timeoutMs, idleMs, ...authorsBounds }));
  const owned = own.move();

  async function errorsOf(
    schema: JsonObject,
    values: JsonObject,
    id: string,
    uid: number,
    signal?: AbortSignal,
  ): Promise<readonly SettingError[]> {
    const answer = await thread.run(`uid ${uid}`, { schema, values }, { signal }).catch((error: unknown) => {
      throw error instanceof TaskError ? taskFailed(error, id, timeoutMs) : error;
    });
    const finding = answer as SettingsFinding;
    if ("unusable" in finding) throw unusable(id, finding.unusable);
    return finding.errors;
  }

  return {
    async validate(manifest, values, uid, signal) {
      const schema = settingsSchema(manifest);
      checkSize(JSON.stringify(values));
      // Without settings no thread needs to start.
      const errors =
        schema === null ? unknownKeys(values) : await errorsOf(schema, values, manifest.id, uid, signal);
      const violations = violationsOf(errors, manifest, values);
      const refused = new Set(violations.map(({ field }) => field));
      const ports = portViolations(manifest, values, explainMissingPort).filter(
        ({ field }) => !refused.has(field),
      );
      violations.push(...ports);
      if (violations.length > 0) throw invalidRequest(violations);
      requireShort(manifest, values);
    },

    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** Violations for a package without settings. */
function unknownKeys(values: JsonObject): SettingError[] {
  const error = { keyword: "additionalProperties", instancePath: "", message: "" };
  return Object.keys(values).map((additionalProperty) => ({ ...error, params: { additionalProperty } }));
}

/** Backups also contain the values, and parse them at once. */
function checkSize(json: string): void {
  let description: string | undefined;
  if (Buffer.byteLength(json) > maxValuesBytes)
    description = `the values are longer than ${maxValuesBytes} bytes as JSON`;
  else if (hasMoreStructure(json, maxStructure))
    description = `the values contain more than ${maxStructure} elements and brackets`;
  // JSON escapes only lone surrogates this way.
  else if (/(?<!\\)(?:\\\\)*\\ud[89a-f]/.test(json))
    description = "the values contain a lone surrogate (half of a character)";
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
      const message = `checking these settings of "${id}" takes more than ${timeoutMs} ms of CPU time: its schema is too slow`;
      return new SvcError("package_invalid", message);
    }
    case "starved":
      return new SvcError(
        "unavailable",
        `the settings of "${id}" could not be checked because this host is too busy; try again`,
      );
    case "too_many":
      return new SvcError(
        "too_many",
        `cannot check the settings of "${id}": ${reachedLimit}; try again in a moment`,
      );
    case "broken":
      return unusable(id, "the schema takes too much memory");
  }
}

/** One violation per field: the first that ajv reports. */
function violationsOf(
  errors: readonly SettingError[],
  manifest: Manifest,
  values: JsonObject,
): FieldViolation[] {
  const byField = new Map<string, FieldViolation>();
  for (const error of errors) {
    const violation = violationOf(error, manifest, values);
    const field = violation.field ?? "";
    if (!byField.has(field)) byField.set(field, violation);
    if (byField.size >= maxViolations) break;
  }
  return [...byField.values()];
}

function violationOf(error: SettingError, manifest: Manifest, values: JsonObject): FieldViolation {
  const steps = error.instancePath.split("/").slice(1);
  const field = `values${steps.map(fieldStep).join("")}`;
  const got = gotText(manifest, values, steps.map(pointerKey));
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case "additionalProperties": {
      const key = String(params["additionalProperty"]);
      const known = error.instancePath === "" ? settingsOf(manifest).map(([name]) => name) : [];
      const near = nearWord(key, known);
      const hint =
        near === undefined
          ? `known settings: ${known.slice(0, maxListedSettings).join(", ")}`
          : `did you mean "${near}"?`;
      const advice = known.length === 0 ? "" : `; ${hint}`;
      return { field: field + fieldStep(key), description: `is not a setting of ${manifest.id}${advice}` };
    }
    case "required":
      return {
        field: field + fieldStep(String(params["missingProperty"])),
        description: "is required",
        missing: true,
      };
    case "enum":
      return { field, description: `must be one of ${JSON.stringify(params["allowedValues"])}${got}` };
    default: {
      const problem = plainProblem(error.keyword, params) ?? error.message ?? "is not valid";
      return { field, description: `${problem}${got}` };
    }
  }
}

/** Longer values are cut in messages. */
const maxShownLength = 60;

/** `, got "abc"`: the rejected value; empty for secrets, which messages and logs must not contain. */
function gotText(manifest: Manifest, values: JsonObject, path: readonly string[]): string {
  const [name = ""] = path;
  if (settingsOf(manifest).some(([each, { secret }]) => each === name && secret === true)) return "";
  let value: unknown = values;
  for (const key of path) value = (value as Readonly<Record<string, unknown>> | undefined)?.[key];
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined || text === `""` || path.length === 0) return "";
  return `, got ${text.length > maxShownLength ? `${text.slice(0, maxShownLength)}…` : text}`;
}

const typeNames: Readonly<Record<string, string>> = {
  integer: "a whole number",
  number: "a number",
  boolean: "true or false",
  string: "a text",
  array: "a list",
  object: "an object",
};

/** Describes the valid values for the usual keywords of JSON Schema; undefined for other keywords. */
function plainProblem(keyword: string, params: Readonly<Record<string, unknown>>): string | undefined {
  const limit = String(params["limit"]);
  switch (keyword) {
    case "type": {
      const types = [params["type"]].flat().map((type) => typeNames[String(type)] ?? String(type));
      return `must be ${types.join(" or ")}`;
    }
    case "minLength":
      return limit === "1" ? "must not be empty" : `must have at least ${limit} characters`;
    case "maxLength":
      return `must have at most ${limit} characters`;
    case "minimum":
      return `must be at least ${limit}`;
    case "maximum":
      return `must be at most ${limit}`;
    default:
      return undefined;
  }
}
