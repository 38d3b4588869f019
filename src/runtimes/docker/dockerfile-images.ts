/**
 * Finds the images that a Dockerfile uses. The engine accepts an ID prefix as a name, and so could build on another
 * user's image: such names are rejected.
 */
import { SvcError } from "../../errors.ts";
import { readBuildKitInstructions, readInstructions, unclear, type Instruction } from "./dockerfile-lines.ts";
import { requireAllowedName } from "./image-names.ts";

/** The arguments of an ARG: `NAME`, `NAME=value`, `NAME="a value"`. */
const argument = /(?<![^ ])([A-Za-z_]\w*)(?:=(?:("[^"\\`]*"|'[^'\\$`]*')|([^"'\\` ]*)))?(?: |$)/g;
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
  return namedImages(readInstructions(text), args, { requireClear: true, requireNamed });
}

/** The images that svc can determine in a Dockerfile for BuildKit, which finds the others itself. */
export function findImages(text: string, args: Readonly<Record<string, string>>): NamedImage[] {
  const all = namedImages(readBuildKitInstructions(text), args, { requireClear: false });
  for (const { reference } of all) requireAllowedName(reference);
  return all.filter(({ reference }) => plainName.test(reference) && !imageId.test(reference));
}

/** @throws SvcError `denied` for an image that is named by its ID or was built by svc */
export function requireFoundNames(text: string, args: Readonly<Record<string, string>>): void {
  const all = namedImages(readBuildKitInstructions(text), args, { requireClear: false });
  for (const { reference } of all) if (plainName.test(reference)) requireNamed(reference);
}

interface ImageChecks {
  /** Whether every image name must be clear. */
  readonly requireClear: boolean;
  readonly requireNamed?: (image: string) => void;
}

function namedImages(
  instructions: Iterable<Instruction>,
  args: Readonly<Record<string, string>>,
  { requireClear, requireNamed: check }: ImageChecks,
): NamedImage[] {
  const images: NamedImage[] = [];
  const values = new Map<string, string>();
  /** Names of finished stages: the engine does not know the current one, and treats its name as an image. */
  const finished = new Set<string>();
  let current = "";
  let stageCount = 0;
  let areValuesClear = true;
  for (const instruction of instructions) {
    const { word, flags, rest, line } = instruction;
    if (word === "ARG" && stageCount === 0)
      areValuesClear = takeArguments(instruction, args, values) && areValuesClear;
    if (word === "FROM") {
      if (current !== "") finished.add(current);
      if (requireClear && !isAscii(rest))
        throw unclear(line, "names an image with characters that are not allowed in names");
      if (requireClear && rest.includes("$") && !areValuesClear)
        throw unclear(line, "uses an ARG after one that has escapes");
      const [image = "", as = "", name = ""] = rest.split(" ");
      requireShort(image, line);
      const reference = expand(image.replaceAll(/^(["'])(.*)\1$/g, "$2"), values);
      current = as.toUpperCase() === "AS" ? name.toLowerCase() : "";
      if (reference !== "scratch" && !finished.has(reference.toLowerCase())) {
        check?.(reference);
        images.push({ reference, instruction, isBase: true, name: current, stage: stageCount });
      }
      stageCount++;
    }
    for (const from of word === "FROM" ? [] : flags.flatMap(sourceOf)) {
      if (finished.has(from.toLowerCase())) continue;
      const isNumber = /^\d+$/.test(from);
      if (isNumber && Number(from) < stageCount - 1) continue;
      if (requireClear && (isNumber ? Number(from) === stageCount - 1 : from.toLowerCase() === current))
        throw denied(
          `line ${line} of the Dockerfile copies from "${from}", its own stage; copy from an earlier stage, or rename the stage to copy from an image of this name`,
        );
      check?.(from);
      images.push({ reference: from, instruction, isBase: false, name: "", stage: stageCount - 1 });
    }
  }
  return images;
}

/** The stage or image in `--from=` of COPY, and in `--mount=` of RUN. */
function sourceOf(flag: string): string[] {
  const from = /^--from=(.*)$/is.exec(flag)?.[1] ?? /^--mount=(?:.*,)?from=([^,]*)/is.exec(flag)?.[1];
  return from === undefined ? [] : [from];
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

/** The images of the stages up to the target; later stages are not built. */
export function upToTarget<T extends { name: string; stage: number; isBase: boolean }>(
  images: readonly T[],
  target: string | undefined,
): readonly T[] {
  const targetName = target?.toLowerCase() ?? "";
  const last = images.findLast(
    ({ isBase, name, stage }) => isBase && [name, String(stage)].includes(targetName),
  );
  return last === undefined || target === undefined
    ? images
    : images.filter(({ stage }) => stage <= last.stage);
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

/** Replaces image names by the names that the engine uses, where they differ. */
export function withImageNames(
  text: string,
  images: readonly NamedImage[],
  nameOf: ReadonlyMap<string, string>,
): string {
  const renamed = images.filter(({ reference }) => (nameOf.get(reference) ?? reference) !== reference);
  return withImageIds(text, renamed, nameOf);
}

function baseWithId({ flags, rest }: Instruction, id: string): string {
  return ["FROM", ...flags, id, ...rest.split(" ").slice(1)].join(" ");
}

/** Changes only the flag, because white space is part of paths written as JSON. */
function copyWithId({ text }: Instruction, reference: string, id: string): string {
  const flag = /(?<=[\t\v\f\r ])(--|--mount=\S*,|--mount=)from=([^\t\v\f\r ,]*)/i;
  return text.replace(flag, (whole, start: string, name: string) =>
    name === reference ? `${start}from=${id}` : whole,
  );
}

/** Evaluates an ARG before the first FROM; returns whether svc reads it as the engine does. */
function takeArguments(
  { rest, line }: Instruction,
  args: Readonly<Record<string, string>>,
  values: Map<string, string>,
): boolean {
  if (rest.length > maxArgumentsLength) return false;
  for (const [, name = "", quoted, plain] of rest.matchAll(argument)) {
    const isLiteral = quoted?.startsWith("'") === true;
    const written = quoted?.slice(1, -1) ?? plain;
    const value = written === undefined || isLiteral ? written : expand(written, values);
    if (rest.includes("$")) requireShort(value, line);
    values.set(name, args[name] ?? value ?? "");
  }
  return plainArguments.test(rest) && isAscii(rest);
}

/** Above the length of any image name. Values that contain others could double with each line. */
const maxImageLength = 4_096;
/** Maximum length of one ARG; images cannot use the values of a longer one. */
const maxArgumentsLength = 16_384;

/** @throws SvcError `denied` */
function requireShort(text = "", line = 0): void {
  if (text.length > maxImageLength)
    throw denied(
      `line ${line} of the Dockerfile has a value or an image of more than ${maxImageLength} characters`,
    );
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

const plainName = /^[\w.\-/:@[\]]+$/;
const imageId = /^(?:[0-9a-f]{1,64}|sha(?:256|512):.*)$/i;

/** @throws SvcError `denied` */
function requireNamed(image: string): void {
  if (!plainName.test(image))
    throw denied(`svc cannot determine the image "${image}"; write its name with a tag`);
  if (imageId.test(image)) {
    throw denied(`"${image}" may be the ID of another user's image; write its name with a tag`);
  }
  requireAllowedName(image);
}

function denied(message: string): SvcError<"denied"> {
  return new SvcError("denied", message);
}
