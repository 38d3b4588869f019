/** Runs svc on a pseudo-terminal, using `script` of util-linux. */
import { spawn } from "node:child_process";
import { main } from "../../support/svc-main.ts";
import { nextEvent } from "../../support/eventually.ts";

/** Types each answer after its question has appeared. */
export type Dialog = readonly (readonly [question: string, answer: string])[];

export interface TerminalRun {
  exitCode: number;
  screen: string;
}

export async function onTerminal(
  args: readonly string[],
  dialog: Dialog = [],
  extraEnv: Readonly<Record<string, string>> = {},
): Promise<TerminalRun> {
  const words = [process.execPath, main, ...args].map((arg) => `'${arg}'`).join(" ");
  const rows = extraEnv["SVC_TEST_ROWS"];
  const command = rows === undefined ? words : `stty rows ${rows} cols 80; ${words}`;
  const { NO_COLOR: _, FORCE_COLOR: __, PAGER: ___, ...env } = process.env;
  const child = spawn("script", ["-qec", command, "/dev/null"], {
    env: { ...env, TERM: "xterm", ...extraEnv },
  });
  const asked = [...dialog];
  let screen = "";
  let seen = 0;
  child.stdout.on("data", (bytes: Buffer) => {
    screen += bytes.toString();
    const [question, answer] = asked[0] ?? [];
    if (question === undefined || !screen.slice(seen).includes(question)) return;
    seen = screen.length;
    asked.shift();
    child.stdin.write(`${answer ?? ""}\n`);
  });
  const [exitCode] = (await nextEvent(child, "close")) as [number];
  return { exitCode, screen };
}

/** Whether this host has `script`. */
export const hasScript = await nextEvent(spawn("script", ["--version"]), "exit").then(
  ([code]) => code === 0,
  () => false,
);
/** For titles of tests that need it. */
export const needsScript = hasScript ? "" : " (skipped: needs `script` of util-linux)";
