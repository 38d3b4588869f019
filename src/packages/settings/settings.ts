/** Converts chosen values to environment variables, arguments, files and ports. */
import { isDeepStrictEqual } from "node:util";
import { isObject, type JsonObject, type JsonValue } from "../../lib/json.ts";
import { secretMask } from "../../lib/secret-mask.ts";
import type { SettingDocument } from "../../../gen/manifest-document.ts";
import { pointerKey } from "../manifest/rule-problem.ts";
import { settingsOf, type Manifest } from "../manifest/manifest.ts";
import { expandPlaceholders, placeholdersIn } from "../manifest/placeholders.ts";

/** A file that svc writes to the app's data directory at every start. */
export interface SettingsFile {
  /** Relative to the data directory. */
  path: string;
  content: string;
}

export interface ResolvedSettings {
  env: Record<string, string>;
  /** Appended to the command, in the manifest's order. */
  args: string[];
  files: SettingsFile[];
  /** Text of every value by setting, for `${settings.NAME}`. */
  texts: Record<string, string>;
}

export interface ResolvedPort {
  name: string;
  protocol: "tcp" | "udp";
  port: number;
}

/** Merges `values` over the manifest's defaults. Settings with neither are absent. */
export function mergeDefaults(manifest: Pick<Manifest, "settings">, values: JsonObject): JsonObject {
  const defaults = settingsOf(manifest).flatMap(([name, setting]): [string, JsonValue][] =>
    setting.default === undefined ? [] : [[name, structuredClone(setting.default) as JsonValue]],
  );
  return { ...Object.fromEntries(defaults), ...values };
}

/** Applies the values. `values` may lack defaults; they must be valid. */
export function resolveSettings(manifest: Pick<Manifest, "settings">, values: JsonObject): ResolvedSettings {
  const merged = mergeDefaults(manifest, values);
  const env: Record<string, string> = {};
  const args: string[] = [];
  const texts: Record<string, string> = {};
  const writer = new FileWriter();
  for (const [name, setting] of settingsOf(manifest)) {
    const value = merged[name];
    texts[name] = value === undefined ? "" : textOf(value);
    if (value === undefined || value === null) continue;
    if (setting.env !== undefined) env[setting.env] = textOf(value);
    if (setting.arg !== undefined) for (const arg of argsOf([setting.arg].flat(), value)) args.push(arg);
    if (setting.file !== undefined) writer.add(setting.file, value);
  }
  return { env, args, texts, files: writer.files() };
}

/** Bytes that the kernel needs per argument besides its text: the terminator and a pointer. */
const argumentLength = 9;

/**
 * How much the manifest's texts and command grow by these values. It does not expand anything: a thousand
 * placeholders of a long value would use all memory.
 */
export function expandedLength({ settings, ...texts }: Manifest, values: JsonObject): number {
  const merged = mergeDefaults({ ...(settings && { settings }) }, values);
  const lengthOf = (name: string): number => {
    const value = Object.hasOwn(merged, name) ? merged[name] : undefined;
    return value === undefined ? 0 : textOf(value).length;
  };
  const lengths = new Map(Object.keys(merged).map((name) => [`settings.${name}`, lengthOf(name)]));
  let length = 0;
  const add = (text: string): void => {
    for (const name of placeholdersIn(text)) length += lengths.get(name) ?? 0;
  };
  // Serializing visits every text.
  JSON.stringify(texts, (_, value: unknown) => {
    if (typeof value === "string") add(value);
    return value;
  });
  for (const [name, { arg }] of settingsOf({ ...(settings && { settings }) })) {
    const items = [merged[name] ?? []].flat();
    const itemsLength = items.reduce<number>((sum, item) => sum + textOf(item).length, 0);
    for (const template of [arg ?? []].flat()) {
      const uses = placeholdersIn(template).filter((placeholder) => placeholder === "value").length;
      length += uses * itemsLength + items.length * (template.length + argumentLength);
    }
  }
  return length;
}

/** Text as it is, booleans as `true` and `false`, numbers in decimal, everything else as JSON. */
function textOf(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function argsOf(templates: readonly string[], value: JsonValue): string[] {
  const takesValue = templates.some((template) => placeholdersIn(template).includes("value"));
  if (!takesValue) return value === true ? templates.map((template) => expandPlaceholders(template, {})) : [];
  return [value]
    .flat()
    .flatMap((item) => templates.map((template) => expandPlaceholders(template, { value: textOf(item) })));
}

/** Collects the files that settings write: whole files, or values in a JSON document. */
class FileWriter {
  readonly #texts = new Map<string, string>();
  readonly #documents = new Map<string, JsonObject>();

  add({ path, pointer }: NonNullable<SettingDocument["file"]>, value: JsonValue): void {
    if (pointer === undefined) {
      this.#texts.set(path, textOf(value));
      return;
    }
    const document = this.#documents.get(path) ?? {};
    this.#documents.set(path, document);
    const steps = pointer.split("/").slice(1);
    const last = pointerKey(steps.pop() ?? "");
    let parent = document;
    for (const step of steps.map(pointerKey)) {
      const next = Object.hasOwn(parent, step) ? parent[step] : undefined;
      const child = isObject(next) ? next : {};
      parent[step] = child;
      parent = child;
    }
    parent[last] = value;
  }

  files(): SettingsFile[] {
    const texts = [...this.#texts].map(([path, content]) => ({ path, content }));
    const documents = [...this.#documents].map(([path, document]) => ({
      path,
      content: `${JSON.stringify(document, undefined, 2)}\n`,
    }));
    return [...texts, ...documents];
  }
}

/** The ports that the app uses with these values, without ports whose setting has no value. */
export function resolvePorts(
  manifest: Pick<Manifest, "settings" | "ports">,
  values: JsonObject,
): ResolvedPort[] {
  const merged = mergeDefaults(manifest, values);
  return manifest.ports.flatMap(({ name, protocol, default: fixed, setting }) => {
    const port = setting === undefined ? fixed : merged[setting];
    return typeof port === "number" ? [{ name, protocol, port }] : [];
  });
}

/** Host addresses of published ports, by port name, where the manifest or a setting specifies one. */
export function resolveAddresses(
  manifest: Pick<Manifest, "settings" | "ports">,
  values: JsonObject,
): ReadonlyMap<string, string> {
  const merged = mergeDefaults(manifest, values);
  return new Map(
    manifest.ports.flatMap(({ name, address, addressSetting }): [string, string][] => {
      const chosen = addressSetting === undefined ? address : merged[addressSetting];
      return typeof chosen === "string" ? [[name, chosen]] : [];
    }),
  );
}

/** `values` for a response: chosen secrets become `"***"`, unless they are empty or the package's default. */
export function maskSecrets(manifest: Pick<Manifest, "settings">, values: JsonObject): JsonObject {
  const masked = settingsOf(manifest)
    .filter(([name, setting]) => setting.secret === true && isChosen(setting, values[name]))
    .map(([name]) => [name, secretMask] as const);
  return { ...values, ...Object.fromEntries(masked) };
}

function isChosen(setting: SettingDocument, value: JsonValue | undefined): boolean {
  const isEmpty = value === undefined || value === null || value === "";
  return !isEmpty && !isDeepStrictEqual(value, setting.default);
}

/** Values from a client: a secret that was sent back as `"***"` keeps its `stored` value. */
export function retainMaskedSecrets(
  manifest: Pick<Manifest, "settings">,
  values: JsonObject,
  stored: JsonObject,
): JsonObject {
  const remaining = { ...values };
  for (const [name, { secret }] of settingsOf(manifest)) {
    if (secret !== true || values[name] !== secretMask) continue;
    const before = stored[name];
    if (before === undefined) Reflect.deleteProperty(remaining, name);
    else remaining[name] = before;
  }
  return remaining;
}
