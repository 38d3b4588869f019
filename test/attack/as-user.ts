/** Programs of the attacks, as the user who attacks. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

export interface Attacker extends AsyncDisposable {
  readonly pid: number;
  /** Resolves with its next words. */
  said(): Promise<string>;
}

/** @param program beside this file; it ends with its standard input */
export function attackAs(uid: number, program: string, argument: object): Attacker {
  const file = fileURLToPath(new URL(program, import.meta.url));
  const identity = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups", "--"];
  const child = spawn("setpriv", [...identity, process.execPath, file, JSON.stringify(argument)], {
    cwd: "/",
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  return {
    pid: child.pid ?? 0,
    said: async () => String((await once(child.stdout, "data"))[0]).trim(),
    async [Symbol.asyncDispose]() {
      child.stdin.end();
      await exited;
    },
  };
}
