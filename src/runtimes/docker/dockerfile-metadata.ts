/**
 * Limits for the descriptions of the images that a regular user's build creates. Each step creates an image that repeats all
 * variables, labels and steps before it, and the engine reads the descriptions of all images for each list of images. Variables
 * expand in other variables, so that a few lines can produce a description of gigabytes.
 */
import { SvcError } from "../../errors.ts";
import { readInstructions, unclear, type Instruction } from "./dockerfile-lines.ts";

const bounds = { instructions: 256, bytes: 128 * 1024, sumBytes: 4 * 2 ** 20 };

/** The parts of a base image that each step repeats. */
export interface RepeatedBase {
  /** Variables, such as `PATH=/bin`. */
  readonly environment: readonly string[];
  readonly descriptionBytes: number;
}

/** Instructions in which the shell expands variables, not the builder. */
const unexpanded = new Set(["CMD", "ENTRYPOINT", "HEALTHCHECK", "MAINTAINER", "RUN", "SHELL"]);

/** `$NAME` or `${NAME`. The name is captured if all engines read it in the same way. */
const variable = /\$(?:\{?([A-Za-z_]\w*))?/g;
/** `${NAME/pattern/replacement}`, which only some engines support. */
const replacement = /\$\{\w+\//;

/**
 * @param args that the build sets
 * @throws SvcError `denied` for more than 256 instructions, more than 128 KiB of instructions with all variables expanded, or
 *   more than 4 MiB of descriptions of all steps
 */
export function requireBoundedMetadata(
  text: string,
  args: Readonly<Record<string, string>>,
  bases: readonly RepeatedBase[],
): void {
  const lengths = new VariableLengths(
    args,
    bases.flatMap(({ environment }) => environment),
  );
  const baseBytes = Math.max(0, ...bases.map(({ descriptionBytes }) => descriptionBytes));
  let count = 0;
  let bytes = 0;
  let sumBytes = 0;
  for (const instruction of readInstructions(text)) {
    const { word, line } = instruction;
    count++;
    bytes += lengths.expand(instruction);
    // The history of the image repeats the arguments of the build with each command.
    if (word === "RUN") bytes += lengths.argumentBytes;
    sumBytes += baseBytes + bytes;
    if (count > bounds.instructions) throw denied(line, `has more than ${bounds.instructions} instructions`);
    if (bytes > bounds.bytes)
      throw denied(line, `is longer than ${bounds.bytes} bytes with its variables expanded`);
    if (sumBytes > bounds.sumBytes)
      throw denied(line, `describes its steps with more than ${bounds.sumBytes} bytes`);
  }
}

/** Upper bounds for the sizes of variables, in bytes, over all stages. */
class VariableLengths {
  readonly #bytes = new Map<string, number>();
  /** Lower bound for every variable, because engines may read some names differently. */
  #least = 0;
  /** Length of the longest variable. */
  #longest = 0;
  #argumentBytes = 0;

  constructor(args: Readonly<Record<string, string>>, environment: readonly string[]) {
    for (const [name, value] of Object.entries(args)) {
      const bytes = Buffer.byteLength(value);
      this.#extend(name, bytes);
      this.#argumentBytes += bytes;
    }
    for (const pair of environment) this.#extend(pair.split("=", 1)[0] ?? "", Buffer.byteLength(pair));
  }

  /** All arguments of the build so far. */
  get argumentBytes(): number {
    return this.#argumentBytes;
  }

  /** Records the variables that the instruction sets. @returns its size with variables expanded, in bytes */
  expand({ word, text, rest, line }: Instruction): number {
    const literalBytes = Buffer.byteLength(text);
    if (unexpanded.has(word)) return literalBytes;
    if (replacement.test(text)) throw unclear(line, "replaces text in a variable");
    const bytes = literalBytes + this.#referredBytes(text);
    if (word !== "ENV" && word !== "ARG") return bytes;
    if (word === "ARG") this.#argumentBytes += bytes;
    this.#set(rest, bytes);
    return bytes;
  }

  #referredBytes(text: string): number {
    const isPlain = isAscii(text);
    let bytes = 0;
    for (const [, name] of text.matchAll(variable))
      bytes +=
        isPlain && name !== undefined ? Math.max(this.#bytes.get(name) ?? 0, this.#least) : this.#most();
    return bytes;
  }

  #set(text: string, bytes: number): void {
    // Quoted text may look like further names; these are recorded too.
    const pairs = text.split(" ").filter((word) => word.includes("="));
    const names = /^[^ ]*=/.test(text) ? pairs.map((word) => word.split("=", 1)[0] ?? "") : text.split(" ");
    const arePlain = isAscii(text) && names.every((name) => /^[\w.-]*$/.test(name));
    if (!arePlain) this.#least = Math.max(this.#least, bytes);
    const isOne = names.length === 1 || /["'\\`]/.test(text);
    const lengths = isOne ? undefined : this.#lengthsOf(pairs);
    for (const name of names) this.#extend(name, lengths?.get(name) ?? bytes);
  }

  /** Sizes of several unquoted pairs, by name. */
  #lengthsOf(pairs: readonly string[]): Map<string, number> {
    const lengths = new Map<string, number>();
    for (const pair of pairs) {
      const [name = ""] = pair.split("=", 1);
      lengths.set(name, (lengths.get(name) ?? 0) + pair.length + this.#referredBytes(pair));
    }
    return lengths;
  }

  #extend(name: string, bytes: number): void {
    const longest = Math.max(this.#bytes.get(name) ?? 0, bytes, this.#least);
    this.#bytes.set(name, longest);
    this.#longest = Math.max(this.#longest, longest);
  }

  #most(): number {
    return Math.max(this.#least, this.#longest);
  }
}

function isAscii(text: string): boolean {
  return /^[\t\v\f\r -~]*$/.test(text);
}

function denied(line: number, excess: string): SvcError {
  const message = `up to line ${line} the Dockerfile ${excess}, which builds of regular users may not; shorten it`;
  return new SvcError("denied", message);
}
