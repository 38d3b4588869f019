/** Rejects lines of a Dockerfile that the builder does not support, and removes flags that it does not need. */
import { failedWithoutOutput } from "./build-output.ts";
import { readBuildKitInstructions, type Instruction } from "./dockerfile-lines.ts";

interface Syntax {
  readonly what: string;
  readonly find: (instruction: Instruction) => boolean;
}

const hasFlag =
  (word: RegExp, flag: RegExp) =>
  (instruction: Instruction): boolean =>
    word.test(instruction.word) && instruction.flags.some((each) => flag.test(each));

/** Supported by BuildKit since the engine 23.0; `--link` is removed instead, because the result is the same. */
const newer: readonly Syntax[] = [
  {
    what: "a here-document",
    find: ({ word, text }) => /^(?:RUN|COPY|ADD)$/.test(word) && /(?:^|[\s\d])<<-?["']?[A-Za-z_]/.test(text),
  },
  { what: "--parents", find: hasFlag(/^COPY$/, /^--parents(?:=|$)/) },
  { what: "--exclude", find: hasFlag(/^(?:COPY|ADD)$/, /^--exclude=/) },
  { what: "--checksum", find: hasFlag(/^ADD$/, /^--checksum=/) },
];

/** Supported by every BuildKit, and not by the engine's classic builder. */
const buildKitOnly: readonly Syntax[] = [
  ...newer,
  { what: "--mount", find: hasFlag(/^RUN$/, /^--mount=/) },
  { what: "--network", find: hasFlag(/^RUN$/, /^--network=/) },
  { what: "--security", find: hasFlag(/^RUN$/, /^--security=/) },
  { what: "--chmod", find: hasFlag(/^(?:COPY|ADD)$/, /^--chmod=/) },
];

/** @throws SvcError `build_failed` for the first line that the BuildKit of an engine before 23.0 does not support */
export function requireOlderSyntax(text: string): void {
  if (/^#\s*syntax\s*=/im.test(text)) return;
  requireNone(
    text,
    newer,
    "which this engine does not support; upgrade the engine to 23.0, or begin the Dockerfile with: # syntax=docker/dockerfile:1",
  );
}

/** @throws SvcError `build_failed` for the first line that needs BuildKit. @param remedy why BuildKit is not used, and what to do */
export function requireClassicSyntax(text: string, remedy: string): void {
  requireNone(text, buildKitOnly, `which needs BuildKit, and ${remedy}`);
}

function requireNone(text: string, forms: readonly Syntax[], remedy: string): void {
  for (const instruction of readBuildKitInstructions(text)) {
    const found = forms.find(({ find }) => find(instruction));
    if (found === undefined) continue;
    const message = `line ${instruction.line} of the Dockerfile has ${found.what}, ${remedy}`;
    throw failedWithoutOutput(message);
  }
}

/** Flags removed from one instruction; each removal copies a line. */
const maxRemoved = 16;

/** Removes flags that do not change the image: `--link`, and `--platform` of a base image for the engine's own platform. */
export function withoutNewerFlags(text: string, platform: string): string {
  const lines = text.split("\n");
  for (const { word, flags, line, lastLine } of readBuildKitInstructions(text)) {
    const needless = flags.filter((flag) => isNeedless(word, flag, platform)).slice(0, maxRemoved);
    // The flags are in the order of the lines.
    let at = line - 1;
    for (const flag of needless) {
      for (; at < lastLine; at++) {
        const shorter = (lines[at] ?? "").replace(` ${flag}`, "");
        if (shorter === lines[at]) continue;
        lines[at] = shorter;
        break;
      }
    }
  }
  return lines.join("\n");
}

function isNeedless(word: string, flag: string, platform: string): boolean {
  if (/^(?:COPY|ADD)$/.test(word)) return /^--link(?:=(?:true|false))?$/i.test(flag);
  if (word !== "FROM") return false;
  const value = /^--platform=(.*)$/.exec(flag)?.[1];
  return value === platform || /^\$(?:\{?)(?:BUILD|TARGET)PLATFORM\}?$/.test(value ?? "");
}
