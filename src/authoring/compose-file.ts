/** Reads a compose file as written, and its variables. */
import type { JsonObject } from "../lib/json.ts";
import { readYaml, type Problem, type YamlDocument } from "../packages/manifest/yaml-document.ts";
import { listOf, mapTexts, mergedRecord, recordOf, textOf } from "../runtimes/compose/compose-values.ts";
import { contentVariablesOf } from "../runtimes/compose/compose-sources.ts";

const bounds = { maxBytes: 512 * 1024, maxTokens: 20_000, maxDepth: 64, maxValues: 20_000 };

/** A variable such as `${NAME}` in a compose file. */
export interface ComposeVariable {
  readonly name: string;
  /** Absent without a default, or if the default is not plain text. */
  readonly fallback?: string;
  /** Whether the file is invalid without a value. */
  readonly isRequired: boolean;
  /** Whether compose warns without a value, and uses an empty text. */
  readonly isExpected: boolean;
  /** Whether it is the content of a secret. */
  readonly isSecret: boolean;
}

export interface ComposeFile {
  /** As written. */
  readonly document: JsonObject;
  readonly lineOf: YamlDocument["lineOf"];
}

export type ComposeReading = { file: ComposeFile } | { problems: readonly Problem[] };

export function readComposeFile(text: string): ComposeReading {
  const result = readYaml(text, bounds);
  if ("problems" in result) return result;
  const { value, lineOf } = result.document;
  const document = mergedRecord(value);
  const services = recordOf(document["services"]);
  if (Object.keys(services).length === 0)
    return { problems: [{ line: 1, message: `"services" is missing` }] };
  return { file: { document, lineOf } };
}

/** `$$`, `${NAME}` with an optional modifier, and `$NAME`; a default may contain another variable. */
const variableForm = /\$\$|\$\{([A-Za-z_]\w*)(?:(:?[-?+])((?:[^{}]|\$\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)/g;

/** The variables of all files, and those that are the content of secrets and configs. */
export function variablesOf(documents: readonly JsonObject[]): ComposeVariable[] {
  const found = new Map<string, ComposeVariable>();
  const add = (
    name: string,
    { fallback, isRequired = false, isExpected = false, isSecret = false }: Partial<ComposeVariable>,
  ): void => {
    const before = found.get(name);
    const known = fallback ?? before?.fallback;
    found.set(name, {
      name,
      isRequired: isRequired || before?.isRequired === true,
      isExpected: isExpected || before?.isExpected === true,
      isSecret: isSecret || before?.isSecret === true,
      ...(known !== undefined && { fallback: known }),
    });
  };
  for (const document of documents) {
    mapTexts(document, (text) => {
      for (const variable of variablesIn(text)) add(variable.name, variable);
      return text;
    });
    for (const { name, kind } of contentVariablesOf(document)) {
      add(name, { isRequired: true, isSecret: kind === "secrets" });
    }
    for (const name of [...mountedVariables(document), ...imageVariables(document)])
      add(name, { isRequired: true });
  }
  return [...found.values()];
}

/** Variables of the owner that compose gets. */
export const ownerVariables: ReadonlySet<string> = new Set(["HOME", "PATH", "PWD", "USER"]);

/** `${NAME}` or `$NAME` at the start of a mounted path. */
const pathStart = /^\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))(?=[:/]|$)/;

/** Variables without a default at the start of mounted paths: without a value, compose rejects or mounts another path. */
function mountedVariables({ services }: JsonObject): string[] {
  const volumes = Object.values(recordOf(services)).flatMap((service) =>
    listOf(mergedRecord(service)["volumes"] ?? null),
  );
  return volumes.flatMap((volume) => {
    const { type, source } = recordOf(volume);
    const path = typeof volume === "string" ? volume : type === "bind" ? textOf(source) : "";
    const [whole, braced, plain] = pathStart.exec(path) ?? [];
    const name = braced ?? plain ?? "";
    // A short form that is only a variable may be a volume without a name.
    return whole === undefined || whole === volume || ownerVariables.has(name) ? [] : [name];
  });
}

/** `${NAME}` or `$NAME` as a whole part of an image: its registry, its name, or the start of its tag or digest. */
const imagePart =
  /^\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))(?=[:@/]|$)|[:@]\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))(?=[-.]|$)/g;

/** Variables without a default that an image needs: without a value, the engine rejects its name. */
function imageVariables({ services }: JsonObject): string[] {
  const images = Object.values(recordOf(services)).map((service) => textOf(mergedRecord(service)["image"]));
  return images.flatMap((image) =>
    [...image.matchAll(imagePart)].map(
      ([, braced, plain, bracedTag, plainTag = ""]) => braced ?? plain ?? bracedTag ?? plainTag,
    ),
  );
}

type WrittenVariable = Pick<ComposeVariable, "name" | "fallback" | "isRequired" | "isExpected">;

function* variablesIn(text: string): Generator<WrittenVariable & { readonly whole: string }> {
  for (const [whole, braced, operator = "", word = "", plain] of text.matchAll(variableForm)) {
    const name = braced ?? plain;
    if (whole === "$$" || name === undefined) continue;
    const isPlain = operator.endsWith("-") && !word.includes("$");
    yield {
      ...{ whole, name, isRequired: operator.endsWith("?"), isExpected: operator === "" },
      ...(isPlain && { fallback: word }),
    };
    for (const inner of variablesIn(word)) yield { ...inner, isExpected: false };
  }
}

/** Replaces variables by their values, their defaults, or nothing. */
export function withDefaults(text: string, values: ReadonlyMap<string, string>): string {
  return text.replaceAll(
    variableForm,
    (whole: string, braced?: string, operator?: string, word?: string, plain?: string) => {
      if (whole === "$$") return "$";
      const value = values.get(braced ?? plain ?? "");
      if (value !== undefined && (value !== "" || operator?.startsWith(":") !== true)) return value;
      return operator?.endsWith("-") === true ? withDefaults(word ?? "", values) : "";
    },
  );
}

/** The variable, if the text is exactly one variable. */
export function onlyVariable(text: string): WrittenVariable | undefined {
  const [variable] = variablesIn(text);
  return variable?.whole === text ? variable : undefined;
}
