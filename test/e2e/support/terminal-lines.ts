/** The terminal commands of docs/try.md, typed into a shell. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import type { TestDaemon } from "../../support/daemon.ts";
import { readSection, typedLines } from "../../support/docs.ts";
import { main } from "../../support/svc-main.ts";

/** The commands that name an app; at least `atLeast`. */
export async function linesAbout(appId: string, atLeast: number): Promise<string[]> {
  const section = await readSection("docs/try.md", "Terminals");
  const lines = typedLines(section).filter((line) => line.split(" ").includes(appId));
  assert.ok(lines.length >= atLeast, "the section has its lines");
  return lines;
}

export interface Typed {
  /** The program's output so far. */
  readonly shown: () => string;
  /** The program's exit code. */
  readonly ended: Promise<number>;
}

/** Without a terminal and without input. */
export function typeLine(daemon: Pick<TestDaemon, "socketPath">, line: string): Typed {
  const script = `svc() { "${process.execPath}" "${main}" --socket "${daemon.socketPath}" "$@"; }\n`;
  const { promise: ended, resolve } = Promise.withResolvers<number>();
  const child = execFile("sh", ["-c", script + line], (error) =>
    resolve(error === null ? 0 : Number(error.code)),
  );
  let text = "";
  for (const output of [child.stdout, child.stderr]) output?.on("data", (piece: string) => (text += piece));
  child.stdin?.end();
  return { shown: () => text, ended };
}
