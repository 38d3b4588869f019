/**
 * The images that a Dockerfile names. The engine takes the beginning of an id for a name, and so would build on an image of
 * somebody else's: names that it could take so are refused (threat 55).
 */
import { SvcError } from "../../errors.ts";
import { requireForeign } from "./foreign-images.ts";

interface Instruction {
  readonly word: string;
  readonly flags: readonly string[];
  readonly rest: string;
}

/**
 * @param args what the build sets
 * @throws SvcError `denied` for an image that is named by its id, was built by svc, or cannot be told
 */
export function requireNamedImages(text: string, args: Readonly<Record<string, string>>): void {
  const values = new Map<string, string>();
  const stages = new Set<string>();
  let stageCount = 0;
  for (const { word, flags, rest } of instructions(text)) {
    if (word === "ARG" && stageCount === 0) {
      for (const part of rest.split(/\s+/)) {
        const [name = "", value] = part.split(/=(.*)/s);
        const known = args[name] ?? value?.replace(/^(["'])(.*)\1$/s, "$2");
        if (known !== undefined) values.set(name, known);
      }
    }
    if (word === "FROM") {
      const [image = "", as = "", name = ""] = rest.split(/\s+/);
      const reference = expand(image, values);
      if (reference !== "scratch" && !stages.has(reference.toLowerCase())) requireNamed(reference);
      if (as.toUpperCase() === "AS") stages.add(name.toLowerCase());
      stageCount++;
    }
    for (const flag of word === "FROM" ? [] : flags) {
      const from = /^--from=(.*)$/is.exec(flag)?.[1];
      if (from === undefined || stages.has(from.toLowerCase())) continue;
      if (!/^\d+$/.test(from) || Number(from) >= stageCount) requireNamed(from);
    }
  }
}

/** `$NAME`, `${NAME}`, `${NAME:-default}`; what is left of other forms is no name of an image. */
function expand(image: string, values: ReadonlyMap<string, string>): string {
  return image.replaceAll(
    /\$(?:(\w+)|\{(\w+)(?::?-([^{}]*))?\})/g,
    (_, plain: string | undefined, braced: string | undefined, otherwise = "") =>
      values.get(plain ?? braced ?? "") || String(otherwise),
  );
}

/** @throws SvcError `denied` */
function requireNamed(image: string): void {
  if (!/^[\w.\-/:@[\]]+$/.test(image))
    throw denied(`svc cannot tell which image "${image}" is: write its name with a tag`);
  if (/^(?:[0-9a-f]{1,64}|sha(?:256|512):.*)$/i.test(image)) {
    throw denied(`"${image}" may be the id of somebody's image: write its name with a tag`);
  }
  requireForeign(image);
}

function* instructions(text: string): Generator<Instruction> {
  const escape = /^(?:\s*#[^\n]*\n)*?\s*#\s*escape\s*=\s*`/i.test(text) ? "`" : "\\";
  let joined = "";
  for (const line of text.replace(/^\uFEFF/, "").split(/\r?\n/)) {
    if (line.trim() === "" || line.trimStart().startsWith("#")) continue;
    const trimmed = line.trimEnd();
    if (trimmed.endsWith(escape)) {
      joined += trimmed.slice(0, -1);
      continue;
    }
    yield* instruction(joined + trimmed);
    joined = "";
  }
  if (joined !== "") yield* instruction(joined);
}

function* instruction(line: string): Generator<Instruction> {
  const [word = "", ...tokens] = line.trim().split(/\s+/);
  if (word.toUpperCase() === "ONBUILD") {
    yield* instruction(tokens.join(" "));
    return;
  }
  const firstPlain = tokens.findIndex((token) => !token.startsWith("--"));
  const at = firstPlain === -1 ? tokens.length : firstPlain;
  yield { word: word.toUpperCase(), flags: tokens.slice(0, at), rest: tokens.slice(at).join(" ") };
}

function denied(message: string): SvcError<"denied"> {
  return new SvcError("denied", message);
}
