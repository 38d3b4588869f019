/**
 * Finds the images that a Dockerfile uses. The engine accepts an ID prefix as a name, and so could build on another
 * user's image: such names are rejected.
 */
import { SvcError } from "../../errors.ts";
import { readInstructions, unclear, type Instruction } from "./dockerfile-lines.ts";
import { requireAllowedName } from "./image-names.ts";

/**
 * The arguments of an ARG before the first FROM that expand to exactly their text: `NAME`, `NAME=value`, `NAME="a
 * value"`.
 */
const argument = /([A-Za-z_]\w*)(?:=(?:("[^"\\$`]*"|'[^'\\$`]*')|([^"'\\$` ]*)))?(?: |$)/g;
const plainArguments = new RegExp(`^(?:${argument.source})+$`);

/** An image in a FROM or `--from=`. */
export interface NamedImage {
  readonly reference: string;
  readonly instruction: Instruction;
  /** Whether it is the base of its stage. */
  readonly isBase: boolean;
  /** Name of its stage, in lower case; empty without one. */
  readonly name: string;
  /** Number of its stage, from 0. */
  readonly stage: number;
}

/**
 * @param args build arguments
 * @returns the images, in order
 * @throws SvcError `denied` for an image that is named by its ID, was built by svc, or cannot be determined
 */
export function requireNamedImages(text: string, args: Readonly<Record<string, string>>): NamedImage[] {
  const images: NamedImage[] = [];
  const values = new Map<string, string>();
  /** Names of finished stages: the engine does not know the current one, and treats its name as an image. */
  const finished = new Set<string>();
  let current = "";
  let stageCount = 0;
  let areValuesClear = true;
  for (const instruction of readInstructions(text)) {
    const { word, flags, rest, line } = instruction;
    if (word === "ARG" && stageCount === 0)
      areValuesClear = takeArguments(rest, args, values) && areValuesClear;
    if (word === "FROM") {
      if (current !== "") finished.add(current);
      if (!isAscii(rest)) throw unclear(line, "names an image with characters that are not allowed in names");
      if (rest.includes("$") && !areValuesClear)
        throw unclear(line, "uses an ARG after one that is set twice or has escapes");
      const [image = "", as = "", name = ""] = rest.split(" ");
      const reference = expand(image, values);
      current = as.toUpperCase() === "AS" ? name.toLowerCase() : "";
      if (reference !== "scratch" && !finished.has(reference.toLowerCase())) {
        requireNamed(reference);
        images.push({ reference, instruction, isBase: true, name: current, stage: stageCount });
      }
      stageCount++;
    }
    for (const flag of word === "FROM" ? [] : flags) {
      const from = /^--from=(.*)$/is.exec(flag)?.[1];
      if (from === undefined || finished.has(from.toLowerCase())) continue;
      const isNumber = /^\d+$/.test(from);
      if (isNumber && Number(from) < stageCount - 1) continue;
      if (isNumber ? Number(from) === stageCount - 1 : from.toLowerCase() === current)
        throw denied(
          `line ${line} of the Dockerfile copies from "${from}", its own stage; copy from an earlier stage, or rename the stage to copy from an image of this name`,
        );
      requireNamed(from);
      images.push({ reference: from, instruction, isBase: false, name: "", stage: stageCount - 1 });
    }
  }
  return images;
}

/**
 * Checks the ONBUILD triggers of an image, which may use images, too.
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

/** Replaces names by image IDs: a name may refer to another image by the time the engine reads the text. */
export function withImageIds(
  text: string,
  images: readonly NamedImage[],
  idOf: ReadonlyMap<string, string>,
): string {
  const lines = text.split("\n");
  for (const { reference, instruction, isBase } of images) {
    const { isTrigger, line, lastLine } = instruction;
    // Triggers run in other builds, which may not refer to an image by its ID.
    if (isTrigger) continue;
    const id = idOf.get(reference) ?? reference;
    const pinned = isBase ? baseWithId(instruction, id) : copyWithId(instruction, reference, id);
    lines.splice(line - 1, lastLine - line + 1, pinned, ...Array<string>(lastLine - line).fill(""));
  }
  return lines.join("\n");
}

function baseWithId({ flags, rest }: Instruction, id: string): string {
  return ["FROM", ...flags, id, ...rest.split(" ").slice(1)].join(" ");
}

/** Changes only the flag, because white space is part of paths written as JSON. */
function copyWithId({ text }: Instruction, reference: string, id: string): string {
  return text.replace(/(?<=[\t\v\f\r ])--from=([^\t\v\f\r ]*)/i, (flag, name: string) =>
    name === reference ? `--from=${id}` : flag,
  );
}

/** Evaluates an ARG before the first FROM; returns whether its names and values are exactly their text. */
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

/** Expands `$NAME`, `${NAME}`, `${NAME:-default}`; other forms remain, and are not valid image names. */
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
    throw denied(`svc cannot determine the image "${image}"; write its name with a tag`);
  if (/^(?:[0-9a-f]{1,64}|sha(?:256|512):.*)$/i.test(image)) {
    throw denied(`"${image}" may be the ID of another user's image; write its name with a tag`);
  }
  requireAllowedName(image);
}

function denied(message: string): SvcError<"denied"> {
  return new SvcError("denied", message);
}
