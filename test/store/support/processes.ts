import { spawn, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { fixtureEnvironment } from "../../support/fixture-environment.ts";

/** A fixture program of this folder, run by this Node; killed when its scope ends. */
export interface Fixture extends AsyncDisposable {
  child: ChildProcessByStdio<Writable, Readable, null>;
  /** The lines printed so far. */
  lines(): string[];
  /** Exit code, or the signal that ended it. */
  exited: Promise<number | NodeJS.Signals>;
}

export function startFixture(name: string, args: readonly string[]): Fixture {
  const path = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
  const child = spawn(process.execPath, [path, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
    env: fixtureEnvironment,
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (output += chunk));
  const exited = once(child, "close").then(([code, signal]) => (code ?? signal) as number | NodeJS.Signals);
  return {
    child,
    // Only complete lines count.
    lines: () => output.split("\n").slice(0, -1),
    exited,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await exited;
    },
  };
}
