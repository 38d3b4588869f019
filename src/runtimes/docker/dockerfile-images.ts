/**
 * The images that a Dockerfile names. The engine takes the beginning of an id for a name, and so would build on an image of
 * somebody else's: names that it could take so are refused (threat 55).
 */
import { SvcError } from "../../errors.ts";
import { readInstructions, unclear, type Instruction } from "./dockerfile-lines.ts";
import { requireForeign } from "./foreign-images.ts";

/** Of an ARG before the first FROM, what expands to nothing but what it says: `NAME`, `NAME=value`, `NAME="a value"`. */
const argument = /([A-Za-z_]\w*)(?:=(?:("[^"\\$`]*"|'[^'\\$`]*')|([^"'\\$` ]*)))?(?: |$)/g;
const plainArguments = new RegExp(`^(?:${argument.source})+$`);

/** A FROM that begins with an image, no stage. */
export interface BaseImage {
  readonly reference: string;
  readonly instruction: Instruction;
  /** Of its stage, in small letters; empty without one. */
  readonly name: string;
  /** Of its stage, from 0. */
  readonly stage: number;
}

/**
 * @param args what the build sets
 * @returns those that it begins with, in their order
 * @throws SvcError `denied` for an image that is named by its id, was built by svc, or cannot be told
 */
export function requireNamedImages(text: string, args: Readonly<Record<string, string>>): BaseImage[] {
  const bases: BaseImage[] = [];
  const values = new Map<string, string>();
  const stages = new Set<string>();
  let stageCount = 0;
  let areValuesClear = true;
  for (const instruction of readInstructions(text)) {
    const { word, flags, rest, line } = instruction;
    if (word === "ARG" && stageCount === 0)
      areValuesClear = takeArguments(rest, args, values) && areValuesClear;
    if (word === "FROM") {
      if (!isAscii(rest)) throw unclear(line, "names an image with letters that no name has");
      if (rest.includes("$") && !areValuesClear)
        throw unclear(line, "uses an ARG, of which some before it are set twice, or not plainly");
      const [image = "", as = "", name = ""] = rest.split(" ");
      const reference = expand(image, values);
      const stageName = as.toUpperCase() === "AS" ? name.toLowerCase() : "";
      if (reference !== "scratch" && !stages.has(reference.toLowerCase())) {
        requireNamed(reference);
        bases.push({ reference, instruction, name: stageName, stage: stageCount });
      }
      if (stageName !== "") stages.add(stageName);
      stageCount++;
    }
    for (const flag of word === "FROM" ? [] : flags) {
      const from = /^--from=(.*)$/is.exec(flag)?.[1];
      if (from === undefined || stages.has(from.toLowerCase())) continue;
      if (!/^\d+$/.test(from) || Number(from) >= stageCount) requireNamed(from);
    }
  }
  return bases;
}

/**
 * What an image has those do that are built on it: they name images, too.
 * @throws SvcError `denied` as {@link requireNamedImages}
 */
export function requireNamedByTriggers(image: string, triggers: readonly string[]): void {
  for (const trigger of triggers) {
    for (const { flags } of readInstructions(trigger)) {
      for (const from of flags.flatMap((flag) => /^--from=(.*)$/is.exec(flag)?.[1] ?? [])) {
        try {
          if (!/^\d+$/.test(from)) requireNamed(from);
        } catch (error) {
          if (error instanceof SvcError) throw denied(`ONBUILD of ${image}: ${error.message}`);
          throw error;
        }
      }
    }
  }
}

/** The text with images in the place of their names: what a name stands for may change until the engine reads it. */
export function withBases(
  text: string,
  bases: readonly BaseImage[],
  idOf: ReadonlyMap<string, string>,
): string {
  const lines = text.split("\n");
  for (const { reference, instruction } of bases) {
    const { flags, rest, line, lastLine } = instruction;
    const [, ...others] = rest.split(" ");
    const words = ["FROM", ...flags, idOf.get(reference) ?? reference, ...others];
    lines.splice(line - 1, lastLine - line + 1, words.join(" "), ...Array<string>(lastLine - line).fill(""));
  }
  return lines.join("\n");
}

/** Takes up what an ARG before the first FROM sets; returns whether its names and values are what they look like. */
function takeArguments(
  rest: string,
  args: Readonly<Record<string, string>>,
  values: Map<string, string>,
): boolean {
  let isClear = plainArguments.test(rest) && isAscii(rest);
  for (const [, name = "", quoted, plain] of rest.matchAll(argument)) {
    if (values.has(name)) isClear = false;
    values.set(name, args[name] ?? quoted?.slice(1, -1) ?? plain ?? "");
  }
  return isClear;
}

function isAscii(text: string): boolean {
  return /^[ -~]*$/.test(text);
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

function denied(message: string): SvcError<"denied"> {
  return new SvcError("denied", message);
}
